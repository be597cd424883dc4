// The TCP backend against the suite of all communicators, and its control plane. The ranks are
// threads, each with connections of its own.
#include <memory>
#include <vector>

#include "tests/core/conformance.h"
#include "tests/core/numbered_messages.h"
#include "tests/core/on_ranks.h"
#include "tests/core/tcp_jobs.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

void RunSuite(int size) {
  OnTcpWorlds(size, [size](World* world) {
    EXPECT_EQ(world->size(), size);
    EXPECT_EQ(std::string(world->name()), "tcp");
    const std::unique_ptr<Communicator> comm = Open(world, AllOf(size));
    Conformance(comm.get()).UpTo(4 << 20).RunAll();
  });
}

TEST(ConformsWith1Rank) { RunSuite(1); }
TEST(ConformsWith2Ranks) { RunSuite(2); }
TEST(ConformsWith3Ranks) { RunSuite(3); }

TEST(ManyRanks) {
  OnTcpWorlds(9, [](World* world) {
    const std::unique_ptr<Communicator> comm = Open(world, AllOf(9));
    Conformance of_nine(comm.get());
    of_nine.CheckBarrier();
    of_nine.CheckMixture();
  });
}

TEST(AbortEndsACall) {
  for (const int size : {2, 4}) {
    OnTcpWorlds(size, [size](World* world) {
      const std::unique_ptr<Communicator> comm = Open(world, AllOf(size));
      const std::unique_ptr<Communicator> aborted = Open(world, AllOf(size));
      CheckAbort(aborted.get());
      EXPECT_OK(comm->Barrier());  // is not touched by that
    });
  }
}

void CheckMessages(World* world) {
  constexpr int kEach = 100;
  std::unique_ptr<ControlPlane> plane;
  ASSERT_OK(world->OpenControlPlane(&plane));
  const int size = plane->size();
  const int rank = plane->rank();
  plane->Wake();
  plane->Wait(std::chrono::hours(1), false);  // ends at once
  for (int i = 0; i < kEach; ++i) {
    for (int to = 0; to < size; ++to) {
      if (to != rank) EXPECT_OK(plane->Send(to, Letter(rank, to, i)));
    }
  }
  std::vector<int> next(static_cast<size_t>(size), 0);
  for (int i = 0; i < kEach * (size - 1); ++i) {
    const Message message = Await(plane.get(), i % 2 == 0);
    int& n = next[static_cast<size_t>(message.from)];
    EXPECT_TRUE(message.bytes == Letter(message.from, rank, n));
    ++n;
  }
  Flush(plane.get());
}

TEST(MessagesArriveOnceAndInOrder) {
  for (const int size : {2, 5}) OnTcpWorlds(size, CheckMessages);
}

// Jobs of the even and of the odd ranks, backwards; side by side, and used again.
TEST(Parts) {
  OnTcpWorlds(5, [](World* world) {
    std::vector<int> ranks;
    for (int r = world->size() - 1; r >= 0; --r) {
      if ((r - world->rank()) % 2 == 0) ranks.push_back(r);
    }
    for (int times = 0; times < 2; ++times) {
      std::unique_ptr<World> part;
      ASSERT_OK(world->OpenPart(ranks, &part));
      EXPECT_EQ(ranks[static_cast<size_t>(part->rank())], world->rank());
      CheckMessages(part.get());
      int64_t sum = world->rank();
      const std::unique_ptr<Communicator> comm = Open(part.get(), AllOf(part->size()));
      EXPECT_OK(comm->AllReduce(&sum, &sum, 1, DType::kInt64, Reduction()));
      EXPECT_EQ(sum, world->rank() % 2 == 0 ? int64_t{6} : int64_t{4});
      EXPECT_OK(part->Close());
    }
    CheckMessages(world);
  });
}

TEST(WhoDoesNotBelongToItOpensNothing) {
  OnTcpWorlds(2, [](World* world) {
    std::unique_ptr<Communicator> comm;
    EXPECT_ERROR(world->OpenCommunicator({1 - world->rank()}, &comm), StatusCode::kInternal,
                 "does not belong to");
  });
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
