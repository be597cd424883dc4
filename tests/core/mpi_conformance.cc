// The MPI backend against the suite of all communicators, and its control plane. Started by mpirun
// (test_mpi_conformance.py): each rank prints its own result and all must succeed.
//
//   mpirun -np 4 mpi_conformance          everything but --huge and --stall
//   mpirun -np 9 mpi_conformance --small  small and mixed sizes alone, for many ranks
//   mpirun -np 20 mpi_conformance --many  several allreduces under way, in exchanges of many
//   messages mpirun -np 2 mpi_conformance --huge   tensors of more than 2^31 bytes: 2.5 GiB a rank
//   mpirun -np 2 mpi_conformance --stall  a rank comes late; the others say so
//   mpirun -np 2 mpi_conformance --errors [--begun]  errors of MPI are returned, also where
//                                                    somebody else has begun it
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/backends/mpi/mpi_error.h"
#include "cc/backends/mpi/mpi_loader.h"
#include "cc/backends/mpi/mpi_world.h"
#include "cc/base/config.h"
#include "tests/core/conformance.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// A failed call leaves the peers waiting: ending the process makes mpirun end the others.
void EndIfFailed() {
  if (Registry::Get().failures() > 0) std::_Exit(1);
}

void CheckSubsets(World* world) {
  const int size = world->size();
  const std::vector<std::vector<int>> sets = {AllOf(size), {0}, {0, size - 1}, AllOf(size - 1)};
  for (const std::vector<int>& members : sets) {
    const auto self = std::find(members.begin(), members.end(), world->rank());
    std::unique_ptr<Communicator> comm;
    if (self == members.end()) {
      EXPECT_ERROR(world->OpenCommunicator(members, &comm), StatusCode::kInternal,
                   "does not belong to");
      continue;
    }
    if (members.size() == 2 && members[0] == members[1]) continue;
    comm = Open(world, members);
    EXPECT_EQ(comm->rank(), static_cast<int>(self - members.begin()));
    EXPECT_EQ(comm->size(), static_cast<int>(members.size()));
    int64_t sum = 1 << world->rank();
    EXPECT_OK(comm->AllReduce(&sum, &sum, 1, DType::kInt64, Reduction()));
    int64_t expected = 0;
    for (const int r : members) expected += 1 << r;
    EXPECT_EQ(sum, expected);
  }
}

// The i-th message from one rank to another: of all lengths, some too long to be sent eagerly.
std::string Letter(int from, int to, int i) {
  const size_t length = i % 10 == 9 ? 200000 : static_cast<size_t>(i * 37 % 3000);
  return std::to_string(from) + ">" + std::to_string(to) + "#" + std::to_string(i) +
         std::string(length, static_cast<char>('a' + i % 26));
}

void CheckControlPlane(World* world) {
  constexpr int kEach = 100;
  std::unique_ptr<ControlPlane> plane;
  ASSERT_OK(world->OpenControlPlane(&plane));
  EXPECT_EQ(plane->rank(), world->rank());
  EXPECT_EQ(plane->size(), world->size());
  plane->Wake();
  plane->Wait(std::chrono::hours(1), false);  // ends at once
  const int size = world->size();
  const int rank = world->rank();
  for (int i = 0; i < kEach; ++i) {
    for (int to = 0; to < size; ++to) {
      if (to != rank) EXPECT_OK(plane->Send(to, Letter(rank, to, i)));
    }
  }
  std::vector<int> next(static_cast<size_t>(size), 0);
  int missing = kEach * (size - 1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((missing > 0 || !plane->Flushed()) && std::chrono::steady_clock::now() < deadline) {
    std::optional<Message> message;
    ASSERT_OK(plane->Receive(&message));
    if (!message.has_value()) {
      plane->Wait(std::chrono::milliseconds(100), true);
      continue;
    }
    int& n = next[static_cast<size_t>(message->from)];
    EXPECT_TRUE(message->bytes == Letter(message->from, rank, n));
    ++n;
    --missing;
  }
  EXPECT_EQ(missing, 0);
  EXPECT_TRUE(plane->Flushed());
}

// Rank 0 comes late; TFHVD_STALL_CHECK_TIME_SECONDS is set to less by the test.
void CheckStall(World* world) {
  const std::unique_ptr<Communicator> comm = Open(world, AllOf(world->size()));
  if (world->rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_OK(comm->Barrier());
}

// Jobs of the even and of the odd ranks, backwards; side by side, and used again.
void CheckParts(World* world) {
  std::vector<int> ranks;
  for (int r = world->size() - 1; r >= 0; --r) {
    if ((r - world->rank()) % 2 == 0) ranks.push_back(r);
  }
  std::unique_ptr<World> part;
  ASSERT_OK(world->OpenPart(ranks, &part));
  EXPECT_EQ(ranks[static_cast<size_t>(part->rank())], world->rank());
  CheckControlPlane(part.get());
  CheckSubsets(part.get());
  EXPECT_OK(part->Close());
}

void CheckEverything(World* world) {
  CheckParts(world);
  EndIfFailed();
  CheckSubsets(world);
  EndIfFailed();
  CheckControlPlane(world);
  EndIfFailed();
  {
    const std::unique_ptr<Communicator> comm = Open(world, AllOf(world->size()));
    Conformance(comm.get()).RunAll();
    EndIfFailed();
    const std::unique_ptr<Communicator> aborted = Open(world, AllOf(world->size()));
    CheckAbort(aborted.get());
    EXPECT_OK(comm->Barrier());  // the others are not touched by that
  }
  CheckControlPlane(world);  // another one after the first
}

// As another package does: MPI ends the process at its errors then.
void BeginMpi() {
  constexpr int kMultiple = 3;  // MPI_THREAD_MULTIPLE, of Open MPI and of MPICH
  const MpiApi* api = nullptr;
  ASSERT_OK(LoadMpiApi(&api));
  using InitThread = int (*)(int*, char***, int, int*);
  void* const init = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
  ASSERT_TRUE(init != nullptr);
  int provided = 0;
  EXPECT_EQ(reinterpret_cast<InitThread>(init)(nullptr, nullptr, kMultiple, &provided), 0);
}

void EndMpi() {
  const MpiApi* api = nullptr;
  ASSERT_OK(LoadMpiApi(&api));
  EXPECT_EQ(api->Finalize(), 0);
}

// A communicator of ranks that there are not.
void CheckErrors(World* world) {
  const MpiApi* api = nullptr;
  ASSERT_OK(LoadMpiApi(&api));
  const int ranks[] = {world->rank(), world->size()};
  MpiHandle comm = 0;
  const int error = api->OpenComm(ranks, 2, 0, &comm);
  EXPECT_TRUE(error != 0);
  EXPECT_CONTAINS(MpiErrorText(*api, error), "rank");
  EXPECT_OK(Open(world, AllOf(world->size()))->Barrier());
}

int Run(const std::string& mode, bool begun) {
  if (begun) BeginMpi();
  Config config;
  std::vector<std::string> warnings;
  EXPECT_OK(ReadConfig(&config, &warnings));
  std::unique_ptr<World> world;
  const Status connected = ConnectMpiWorld(config, ReadLaunchHints(), &world);
  EXPECT_OK(connected);
  EndIfFailed();
  EXPECT_EQ(std::string(world->name()), "mpi");
  if (mode == "--huge") {
    const std::unique_ptr<Communicator> comm = Open(world.get(), AllOf(world->size()));
    Conformance(comm.get()).CheckHuge();
  } else if (mode == "--small") {
    const std::unique_ptr<Communicator> comm = Open(world.get(), AllOf(world->size()));
    Conformance suite(comm.get());
    suite.CheckBarrier();
    suite.CheckMixture();
  } else if (mode == "--many") {
    const std::unique_ptr<Communicator> comm = Open(world.get(), AllOf(world->size()));
    Conformance(comm.get()).UpTo(1 << 20).CheckStarted();
  } else if (mode == "--stall") {
    CheckStall(world.get());
  } else if (mode == "--errors") {
    CheckErrors(world.get());
  } else {
    CheckEverything(world.get());
  }
  EndIfFailed();
  EXPECT_OK(world->Close());
  if (begun) EndMpi();
  EndIfFailed();
  std::printf("rank %d of %d conforms, with %s\n", world->rank(), world->size(),
              world->description().c_str());
  return 0;
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) { return tfhvd::testing::Run(argc > 1 ? argv[1] : "", argc > 2); }
