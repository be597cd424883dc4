// The inproc backend against the suite of all communicators, with ranks as threads, and what is
// particular to it: mail, mismatched calls, ranks that leave.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "tests/core/conformance.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

void RunSuite(int size) {
  OnRanks(size, [](Communicator* comm) { Conformance(comm).RunAll(); });
}

TEST(ConformsWith1Rank) { RunSuite(1); }
TEST(ConformsWith2Ranks) { RunSuite(2); }
TEST(ConformsWith3Ranks) { RunSuite(3); }
TEST(ConformsWith5Ranks) { RunSuite(5); }
TEST(ConformsWith8Ranks) { RunSuite(8); }

TEST(AbortEndsACall) {
  for (const int size : {1, 2, 4}) OnRanks(size, CheckAbort);
}

// Ranks meet in overlapping subsets, and again in a second communicator of the same members.
TEST(SubsetsHaveTheirOwnCommunicators) {
  InprocGroup group(4);
  RunThreads(4, [&](int rank) {
    const std::unique_ptr<World> world = group.OpenWorld(rank);
    for (const std::vector<int>& members :
         {std::vector<int>{0, 2}, std::vector<int>{1, 2, 3}, std::vector<int>{0, 2}}) {
      const auto self = std::find(members.begin(), members.end(), rank);
      std::unique_ptr<Communicator> comm;
      if (self == members.end()) {
        EXPECT_ERROR(world->OpenCommunicator(members, &comm), StatusCode::kInternal,
                     "does not belong to");
        continue;
      }
      ASSERT_OK(world->OpenCommunicator(members, &comm));
      EXPECT_EQ(comm->rank(), static_cast<int>(self - members.begin()));
      int32_t sum = rank;
      EXPECT_OK(comm->AllReduce(&sum, &sum, 1, DType::kInt32, Reduction()));
      EXPECT_EQ(sum, members.size() == 2 ? 2 : 6);
    }
  });
}

// Jobs of some ranks each, in an order of their own.
TEST(PartsAreWorldsOfTheirOwn) {
  OnWorlds(5, [](World* world) {
    const std::vector<std::vector<int>> parts = {{4, 0, 2}, {1, 3}};
    const std::vector<int>& mine = parts[world->rank() % 2];
    for (int round = 0; round < 2; ++round) {
      std::unique_ptr<World> part;
      ASSERT_OK(world->OpenPart(mine, &part));
      EXPECT_EQ(part->size(), static_cast<int>(mine.size()));
      EXPECT_EQ(mine[static_cast<size_t>(part->rank())], world->rank());
      std::unique_ptr<Communicator> comm;
      ASSERT_OK(part->OpenCommunicator(AllOf(part->size()), &comm));
      int64_t sum = 1 << world->rank();
      ASSERT_OK(comm->AllReduce(&sum, &sum, 1, DType::kInt64, Reduction()));
      EXPECT_EQ(sum, world->rank() % 2 == 0 ? 21 : 10);
    }
    std::unique_ptr<World> part;
    EXPECT_ERROR(world->OpenPart(parts[1 - world->rank() % 2], &part), StatusCode::kInvalidArgument,
                 "is number " + std::to_string(world->rank()) + " of the 5");
    for (const std::vector<int>& wrong : {std::vector<int>{0, 5}, {0, 0}, {-1}, {}}) {
      EXPECT_ERROR(world->OpenPart(wrong, &part), StatusCode::kInvalidArgument,
                   "Expected: different numbers from 0 to 4");
    }
  });
}

TEST(SoloWorldIsAlone) {
  const std::unique_ptr<World> world = MakeSoloWorld();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(std::string(world->name()), "inproc");
  std::unique_ptr<Communicator> comm;
  ASSERT_OK(world->OpenCommunicator({0}, &comm));
  Conformance(comm.get()).RunAll();
}

TEST(MismatchedCallsFailOnEveryRank) {
  OnRanks(3, [](Communicator* comm) {
    std::vector<float> data(10);
    const Status status = comm->rank() == 1 ? comm->Broadcast(data.data(), 40, 0)
                                            : comm->AllReduce(data.data(), data.data(), 10,
                                                              DType::kFloat32, Reduction());
    EXPECT_ERROR(status, StatusCode::kInternal, "different collectives");
  });
  OnRanks(2, [](Communicator* comm) {
    std::vector<char> in(8), out(8);
    const std::vector<int64_t> four = {4, 4};
    const std::vector<int64_t> receive = comm->rank() == 0 ? four : std::vector<int64_t>{3, 4};
    EXPECT_ERROR(comm->AllToAll(in.data(), four, out.data(), receive), StatusCode::kInternal,
                 "rank 0 sends 4 bytes to rank 1");
  });
}

TEST(BoolSumsAreRefusedBeforeAnybodyWaits) {
  OnRanks(2, [](Communicator* comm) {
    bool value = true;
    EXPECT_ERROR(comm->AllReduce(&value, &value, 1, DType::kBool, Reduction()),
                 StatusCode::kInvalidArgument, "bool");
    EXPECT_OK(comm->Barrier());
  });
}

// No more than the contract promises: who waits for a rank that has gone learns it by its monitor.
TEST(ARankThatFailsFailsNoOther) {
  class Ends : public WaitMonitor {
   public:
    Status OnWait(const Wait& wait) override {
      EXPECT_EQ(wait.ranks.back(), 2);  // rank 0 or 1 may be late as well
      return ++asked < 5 ? Status::Ok() : Status::Aborted("rank 2 has gone");
    }
    int asked = 0;
  };
  OnRanks(3, [](Communicator* comm) {
    EXPECT_OK(comm->Barrier());
    if (comm->rank() == 2) return comm->Abort(Status::Aborted("bad luck"));
    Ends ends;
    comm->SetWaitMonitor(&ends);
    EXPECT_ERROR(comm->Barrier(), StatusCode::kAborted, "rank 2 has gone");
    EXPECT_ERROR(comm->Poll(), StatusCode::kAborted, "rank 2 has gone");
  });
}

// Aborts at random times, while some ranks read others' buffers: run under AddressSanitizer and
// ThreadSanitizer, this is what shows a rank that leaves too early.
TEST(AbortInTheMiddleLeavesNobodyReading) {
  for (int round = 0; round < 30; ++round) {
    InprocGroup group(4);
    RunThreads(5, [&](int rank) {
      if (rank == 4) {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
        group.Abort(Status::Aborted("network down"));
        return;
      }
      const std::unique_ptr<World> world = group.OpenWorld(rank);
      std::unique_ptr<Communicator> comm;
      ASSERT_OK(world->OpenCommunicator(AllOf(4), &comm));
      Status status;
      while (status.ok()) {
        std::vector<float> in(20000, 1.0f), out(20000);
        status = comm->AllReduce(in.data(), out.data(), 20000, DType::kFloat32, Reduction());
        if (status.ok()) EXPECT_EQ(out[19999], 4.0f);
      }
      EXPECT_EQ(status.code(), StatusCode::kAborted);
    });
  }
}

// Sleeps for a message, so long that a test would not end if nothing woke it; false on failure.
bool Await(ControlPlane* plane, Message* out) {
  while (true) {
    std::optional<Message> message;
    if (!plane->Receive(&message).ok()) return false;
    if (message.has_value()) {
      *out = std::move(*message);
      return true;
    }
    plane->Wait(std::chrono::hours(1), false);
  }
}

TEST(MailArrivesInOrderAndWakes) {
  constexpr int kRanks = 4;
  constexpr int kEach = 200;
  InprocGroup group(kRanks);
  RunThreads(kRanks, [&](int rank) {
    const std::unique_ptr<World> world = group.OpenWorld(rank);
    std::unique_ptr<ControlPlane> plane;
    ASSERT_OK(world->OpenControlPlane(&plane));
    std::unique_ptr<Communicator> comm;
    ASSERT_OK(world->OpenCommunicator(AllOf(kRanks), &comm));
    for (int i = 0; i < kEach; ++i) {
      for (int to = 0; to < kRanks; ++to) {
        if (to != rank) EXPECT_OK(plane->Send(to, std::to_string(rank * 1000 + i)));
      }
    }
    EXPECT_TRUE(plane->Flushed());
    std::vector<int> next(kRanks, 0);
    for (int i = 0; i < kEach * (kRanks - 1); ++i) {
      Message message;
      ASSERT_TRUE(Await(plane.get(), &message));
      int& n = next[static_cast<size_t>(message.from)];
      EXPECT_EQ(message.bytes, std::to_string(message.from * 1000 + n));
      ++n;
    }
    std::optional<Message> none;
    EXPECT_OK(plane->Receive(&none));
    EXPECT_FALSE(none.has_value());
    EXPECT_OK(comm->Barrier());
  });
}

TEST(WakeEndsAWaitUnderWayAndTheNext) {
  const std::unique_ptr<World> world = MakeSoloWorld();
  std::unique_ptr<ControlPlane> plane;
  ASSERT_OK(world->OpenControlPlane(&plane));
  plane->Wake();
  plane->Wait(std::chrono::hours(1), false);
  std::thread other([&plane] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    plane->Wake();
  });
  plane->Wait(std::chrono::hours(1), true);
  other.join();
  plane->Wait(std::chrono::milliseconds(1), false);  // nobody wakes it: its time ends
}

TEST(AbortOfTheGroupEndsTheMail) {
  InprocGroup group(2);
  const std::unique_ptr<World> world = group.OpenWorld(0);
  std::unique_ptr<ControlPlane> plane;
  ASSERT_OK(world->OpenControlPlane(&plane));
  group.Abort(Status::Aborted("network down"));
  plane->Wait(std::chrono::hours(1), false);  // ends at once
  std::optional<Message> message;
  EXPECT_ERROR(plane->Receive(&message), StatusCode::kAborted, "network down");
  EXPECT_ERROR(plane->Send(1, "x"), StatusCode::kAborted, "network down");
  std::unique_ptr<ControlPlane> later;
  ASSERT_OK(world->OpenControlPlane(&later));
  EXPECT_ERROR(later->Receive(&message), StatusCode::kAborted, "network down");
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
