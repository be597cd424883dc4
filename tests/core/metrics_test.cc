// What an engine counts: each event once, and waits for the rank that was late, and no other.
#include "cc/observe/metrics.h"

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr double kLate = 0.05;  // seconds

void Pause(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

int64_t Unlocked(const EngineMetrics& m, UnlockReason reason) {
  return m.unlocked[static_cast<size_t>(reason)];
}

int64_t AllUnlocked(const EngineMetrics& m) {
  return std::accumulate(m.unlocked.begin(), m.unlocked.end(), int64_t{0});
}

// So many steps of sums by these names, 100 elements each; rank `late` begins each step later.
void Steps(Rank* rank, int steps, const std::vector<std::string>& names, int late = -1) {
  for (int step = 0; step < steps; ++step) {
    if (rank->rank() == late) Pause(kLate);
    std::vector<std::unique_ptr<Call>> calls;
    for (const std::string& name : names) calls.push_back(AllReduce(rank, name, 100, 1.0f));
    for (const auto& call : calls) EXPECT_OK(call->Wait());
  }
}

TEST(CountsNothingBeforeAnythingIsDone) {
  RunRanks(2, [](Rank* rank) {
    const EngineMetrics m = rank->engine()->telemetry().metrics();
    EXPECT_EQ(m.submitted, 0);
    EXPECT_EQ(m.tensors, 0);
    EXPECT_EQ(m.calls, 0);
    EXPECT_EQ(m.waited.size(), size_t{2});
    EXPECT_EQ(m.waited[0] + m.waited[1] + m.waited_for_unknown, 0.0);
  });
}

TEST(CountsTensorsAndBytesOnce) {
  RunRanks(2, [](Rank* rank) {
    Steps(rank, 40, {"a", "b"});
    const EngineMetrics m = rank->engine()->telemetry().metrics();
    EXPECT_EQ(m.submitted, 80);
    EXPECT_EQ(m.completed, 80);
    EXPECT_EQ(m.failed, 0);
    EXPECT_EQ(m.tensors, 80);
    EXPECT_EQ(m.bytes, 80 * 400);
    // Each is alone in its call or with the other.
    EXPECT_EQ(m.calls + m.fused_tensors / 2, 80);
    EXPECT_TRUE(m.rounds >= 40);
    EXPECT_TRUE(m.locked_rounds > 0);
    EXPECT_TRUE(m.rounds > m.locked_rounds);
    EXPECT_TRUE(m.cache_misses >= 2);
    EXPECT_TRUE(m.locked_steps > AllUnlocked(m) - 1);
  });
}

// Whether the thread that submits a sum is the one on which it is done.
bool DoneHere(Rank* rank) {
  auto call = std::make_unique<Call>();
  call->in.assign(4, 1.0f);
  call->out.assign(4, 0.0f);
  std::thread::id thread;
  Entry entry = EntryFor(call.get(), Collective::kAllReduce, "a", {4});
  entry.done = [c = call.get(), &thread](const Status& status) {
    thread = std::this_thread::get_id();
    c->promise.set_value(status);
  };
  rank->engine()->Submit(std::move(entry));
  EXPECT_OK(call->Wait());
  return thread == std::this_thread::get_id();
}

// The engine's thread may be up just then, so no single step tells.
TEST(CountsWhatCallingThreadsRun) {
  RunRanks(1, [](Rank* rank) {
    int64_t here = 0;
    for (int step = 0; step < 500; ++step) {
      here += DoneHere(rank) ? 1 : 0;
      Pause(0.0003);
    }
    const EngineMetrics m = rank->engine()->telemetry().metrics();
    EXPECT_TRUE(here > 0);
    EXPECT_EQ(m.inline_runs, here);
    EXPECT_TRUE(m.inline_runs <= m.locked_rounds);
  });
}

TEST(CountsFailures) {
  RunRanks(2, [](Rank* rank) {
    EXPECT_ERROR(AllReduce(rank, "x", rank->rank() == 0 ? 3 : 4, 1.0f)->Wait(),
                 StatusCode::kInvalidArgument, "Mismatched shapes");
    const EngineMetrics m = rank->engine()->telemetry().metrics();
    EXPECT_EQ(m.failed, 1);
    EXPECT_EQ(m.completed, 0);
    EXPECT_EQ(m.tensors, 0);
    EXPECT_EQ(m.bytes, 0);
  });
}

TEST(NamesAreAnnouncedInFullOnceAndByNumberThen) {
  RunRanks(2, [](Rank* rank) {
    Steps(rank, 2, {"a"});
    const EngineMetrics m = rank->engine()->telemetry().metrics();
    EXPECT_EQ(m.cache_misses, 1);
    EXPECT_EQ(m.cache_hits, 1);
  });
}

// A step may be unlocked for other reasons too, by a rank that the machine holds up.
TEST(SaysWhyALockedStepEnded) {
  constexpr int kTimes = 10;
  std::vector<EngineMetrics> of(2);
  RunRanks(2, [&of](Rank* rank) {
    for (int i = 0; i < kTimes; ++i) {
      Steps(rank, 40, {"a", "b"});
      Steps(rank, 1, {"another " + std::to_string(i)});
    }
    const EngineMetrics m = of[static_cast<size_t>(rank->rank())] =
        rank->engine()->telemetry().metrics();
    EXPECT_TRUE(m.locked_steps > 0);
    EXPECT_EQ(AllUnlocked(m), m.locked_steps);  // the last call was no part of one
    EXPECT_EQ(Unlocked(m, UnlockReason::kCancelled), 0);
    EXPECT_TRUE(Unlocked(m, UnlockReason::kOtherEntry) <= kTimes);
  });
  // Who sees its own program deviate says so. The other one had called it too, or had no reason.
  EXPECT_TRUE(
      Unlocked(of[0], UnlockReason::kOtherEntry) + Unlocked(of[1], UnlockReason::kOtherEntry) > 0);
}

TEST(WaitsForTheLateRankOfTwo) {
  std::vector<EngineMetrics> of(2);
  RunRanks(2, [&of](Rank* rank) {
    Steps(rank, 40, {"a"}, 1);
    of[static_cast<size_t>(rank->rank())] = rank->engine()->telemetry().metrics();
  });
  EXPECT_TRUE(of[0].waited[1] > of[1].waited[0]);
  EXPECT_EQ(of[0].waited[0], 0.0);
  EXPECT_EQ(of[1].waited[1], 0.0);
}

// While ranks vote, a rank of four may not know who was the last; by messages rank 0 does.
TEST(NamesTheLateRankOfFour) {
  RunRanks(4, [](Rank* rank) {
    Steps(rank, 20, {"a"}, 2);
    const EngineMetrics m = rank->engine()->telemetry().metrics();
    EXPECT_EQ(m.waited[static_cast<size_t>(rank->rank())], 0.0);
    if (rank->rank() == 0) EXPECT_TRUE(m.waited[2] > m.waited[1] + m.waited[3]);
  });
}

TEST(ReasonsHaveNamesOfTheirOwn) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kUnlockReasons; ++i) {
    names.emplace_back(UnlockReasonName(static_cast<UnlockReason>(i)));
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(names[i] == names[j]);
  }
}

TEST(AddsWaitsByRank) {
  Metrics metrics(3);
  metrics.Waited(1, 0.5);
  metrics.Waited(1, 0.25);
  metrics.Waited(kSeveralRanks, 2.0);
  const EngineMetrics m = metrics.snapshot();
  EXPECT_EQ(m.waited[0], 0.0);
  EXPECT_EQ(m.waited[1], 0.75);
  EXPECT_EQ(m.waited_for_unknown, 2.0);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
