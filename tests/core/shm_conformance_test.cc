// The shm backend against the suite of all communicators. The ranks are threads, but each maps the
// memory for itself, as processes do.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/sized_communicator.h"
#include "tests/core/conformance.h"
#include "tests/core/no_memory.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// Runs `body(communicator)` on every rank of a job on one host.
template <typename Body>
void OnOneHost(int size, int64_t slot_bytes, const Body& body, bool past_caches = false) {
  OnRanks(size, [&](Communicator* host) {
    ShmOptions options;
    options.slot_bytes = slot_bytes;
    if (past_caches) {
      options.stores = StoreIn::kMemory;
      options.result_past_caches = 0;
    }
    options.log = Log(LogLevel::kFatal, host->rank());
    std::unique_ptr<Communicator> comm;
    ASSERT_OK(MakeShmCommunicator(host, options, &comm));
    EXPECT_EQ(comm->rank(), host->rank());
    EXPECT_EQ(comm->size(), size);
    body(comm.get());
  });
}

void RunSuite(int size, int64_t slot_bytes) {
  OnOneHost(size, slot_bytes, [](Communicator* comm) { Conformance(comm).RunAll(); });
}

constexpr int64_t kUsual = 1 << 20;
// So small that every collective takes many turns.
constexpr int64_t kTiny = 4096;

TEST(ConformsWith1Rank) { RunSuite(1, kUsual); }
TEST(ConformsWith2Ranks) { RunSuite(2, kUsual); }
TEST(ConformsWith3Ranks) { RunSuite(3, kUsual); }
TEST(ConformsWith8Ranks) { RunSuite(8, kUsual); }
TEST(ConformsWith2RanksInTinySlots) { RunSuite(2, kTiny); }
TEST(ConformsWith5RanksInTinySlots) { RunSuite(5, kTiny); }

TEST(ConformsPastTheCaches) {
  OnOneHost(2, kUsual, [](Communicator* comm) { Conformance(comm).CheckMixture(); }, true);
}

TEST(AbortEndsACall) {
  for (const int size : {2, 4}) OnOneHost(size, kUsual, CheckAbort);
}

Status SumOf(int64_t count, Communicator* comm) {
  std::vector<float> data(static_cast<size_t>(count), 1.0f);
  TFHVD_RETURN_IF_ERROR(
      comm->AllReduce(data.data(), data.data(), count, DType::kFloat32, Reduction()));
  const auto sum = static_cast<float>(comm->size());
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [sum](float x) { return x == sum; }));
  return Status::Ok();
}

TEST(MemoryIsTakenOnceItIsNeededAndGivenBack) {
  OnOneHost(3, kUsual, [](Communicator* comm) {
    const auto* sized = dynamic_cast<SizedShmCommunicator*>(comm);
    ASSERT_TRUE(sized != nullptr);
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_OK(SumOf(1000, comm));
      EXPECT_FALSE(sized->is_large());
      if (turn == 0) EXPECT_OK(SumOf(100000, comm));
      if (turn == 1) {  // one rank has much for another one
        const bool sends = comm->rank() == 1;
        const std::string in(sends ? 100000 : 0, 'x');
        std::string out(comm->rank() == 2 ? 100000 : 0, ' ');
        EXPECT_OK(comm->AllToAll(in.data(), {0, 0, static_cast<int64_t>(in.size())}, &out[0],
                                 {0, static_cast<int64_t>(out.size()), 0}));
        EXPECT_TRUE(out == std::string(out.size(), 'x'));
      }
      EXPECT_TRUE(sized->is_large());
      for (int i = 0; i < SizedShmCommunicator::kCallsToKeep; ++i) EXPECT_OK(comm->Barrier());
      EXPECT_TRUE(sized->is_large());
      EXPECT_OK(comm->Barrier());
      EXPECT_FALSE(sized->is_large());
    }
  });
}

TEST(WithoutMoreMemoryAllGoesThroughTheFirst) {
  std::optional<NoMemory> none;
  OnOneHost(3, kUsual, [&none](Communicator* comm) {
    if (comm->rank() == 1) none.emplace();
    EXPECT_OK(comm->Barrier());
    for (int64_t count : {100000, 10, 100000}) EXPECT_OK(SumOf(count, comm));
    EXPECT_FALSE(dynamic_cast<SizedShmCommunicator*>(comm)->is_large());
  });
}

// Turns are counted in 32 bits and wrap around in a long job.
TEST(CountersWrapAround) {
  SharedMemory memory;
  ASSERT_OK(SharedMemory::Create(4096, &memory));
  ASSERT_OK(memory.Reserve({0, 4096}));
  auto* counter = reinterpret_cast<SharedCounter*>(memory.data());
  counter->Set(2);
  EXPECT_OK(counter->WaitFor(0xffffffffu, 0, nullptr));
  counter->Set(0xfffffffeu);
  EXPECT_OK(counter->WaitFor(0xfffffff0u, 0, nullptr));
}

// The kernel has no more memory to give.
TEST(MemoryThatCannotBeHadIsSaidOnEveryRank) {
  const NoMemory none;
  OnRanks(3, [](Communicator* host) {
    ShmOptions options;
    options.log = Log(LogLevel::kFatal, host->rank());
    std::unique_ptr<Communicator> comm;
    EXPECT_ERROR(MakeShmCommunicator(host, options, &comm), StatusCode::kUnavailable,
                 host->rank() == 0 ? "memory for the ranks of this host to share: File too large; "
                                     "free some, or raise the limit"
                                   : "could not make shared memory");
    EXPECT_OK(host->Barrier());  // what joined them still does
  });
}

// Bytes of memory behind what was made.
int64_t Backed(const SharedMemory& memory) {
  struct stat about = {};
  EXPECT_EQ(stat(memory.handle().path().c_str(), &about), 0);
  return about.st_blocks * 512;
}

// Pages lie where the rank is that asks for them: the first one must not ask for all.
TEST(EachRankReservesWhatItWrites) {
  const int ranks = 3;
  ShmOptions options;
  options.slot_bytes = kUsual;
  const int64_t bytes = ShmCommunicator::SizeFor(ranks, options);
  SharedMemory mine;
  ASSERT_OK(SharedMemory::Create(bytes, &mine));
  SharedMemory theirs;
  ASSERT_OK(SharedMemory::Open(mine.handle(), bytes, &theirs));
  EXPECT_TRUE(Backed(mine) < kUsual * 4);
  int64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    SharedMemory* const memory = rank == 0 ? &mine : &theirs;
    for (const SharedMemory::Part& part : ShmCommunicator::PartsOf(rank, ranks, options)) {
      EXPECT_EQ(part.begin % Exchange::kPage, int64_t{0});
      ASSERT_OK(memory->Reserve(part));
      sum += part.bytes;
      EXPECT_TRUE(Backed(mine) >= sum);  // nobody's twice
    }
  }
  EXPECT_EQ(sum, bytes);
}

// So nothing of a killed job can be left behind, no two jobs can meet, and the size of /dev/shm
// says nothing.
TEST(MemoryLiesInNoFolder) {
  SharedMemory memory;
  ASSERT_OK(SharedMemory::Create(4096, &memory));
  char target[64] = {0};
  ASSERT_TRUE(readlink(memory.handle().path().c_str(), target, sizeof target - 1) > 0);
  EXPECT_EQ(std::string(target), std::string("/memfd:tfhvd (deleted)"));
}

TEST(MemoryThatCannotBeSharedIsSaid) {
  SharedMemory mine;
  ASSERT_OK(SharedMemory::Create(4096, &mine));
  ASSERT_OK(mine.Reserve({0, 4096}));
  SharedMemory memory;
  SharedMemory::Handle handle = mine.handle();
  handle.file = 1 << 20;
  EXPECT_ERROR(SharedMemory::Open(handle, 4096, &memory), StatusCode::kUnavailable, "cannot open");
  EXPECT_OK(SharedMemory::Open(mine.handle(), 4096, &memory));
  mine.data()[4095] = 'x';
  EXPECT_EQ(memory.data()[4095], 'x');
}

// The process of that number is another one in another container, and what it has open as well.
TEST(MemoryOfAnUnrelatedProcessIsNotTaken) {
  SharedMemory mine;
  SharedMemory unrelated;
  ASSERT_OK(SharedMemory::Create(4096, &mine));
  ASSERT_OK(SharedMemory::Create(4096, &unrelated));
  const auto open = [](const SharedMemory::Handle& handle, int64_t bytes) {
    SharedMemory memory;
    return SharedMemory::Open(handle, bytes, &memory);
  };
  const SharedMemory::Handle right = mine.handle();

  SharedMemory::Handle wrong = right;
  ++wrong.pid_namespace;
  EXPECT_ERROR(open(wrong, 4096), StatusCode::kUnavailable, "of another PID namespace");
  wrong = right;
  wrong.file = unrelated.handle().file;
  EXPECT_ERROR(open(wrong, 4096), StatusCode::kUnavailable, "another file; the ranks may run in");
  EXPECT_ERROR(open(right, 8192), StatusCode::kUnavailable, "another file");
  wrong = unrelated.handle();  // of another machine's: all is equal by chance but for this
  wrong.nonce[1] ^= 1;
  EXPECT_ERROR(open(wrong, 4096), StatusCode::kUnavailable, "another memory");
  EXPECT_OK(open(right, 4096));
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
