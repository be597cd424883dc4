// When a step counts as repeated, and into which buckets it is cut: plain values in, plain values
// out.
#include "cc/schedule/step_detector.h"

#include <cstdint>
#include <vector>

#include "cc/schedule/gaps.h"
#include "cc/schedule/step_cut.h"
#include "cc/schedule/step_periods.h"
#include "cc/schedule/trust.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

// Sees steps; each agreement takes what is given together.
class Program {
 public:
  // Reductions of `bytes` bytes, agreed together; announced after the agreement before had been
  // seen, or (`early`) before.
  void Together(const Bucket& ids, int64_t bytes = 4, bool early = false, bool fusible = true) {
    ++sequence_;
    for (CacheId id : ids) {
      detector.Saw({id, bytes, sequence_, early ? sequence_ - 2 : sequence_ - 1, fusible});
    }
  }
  void Steps(int times, const Bucket& ids) {
    for (int i = 0; i < times; ++i) Together(ids);
  }

  StepDetector detector;

 private:
  uint64_t sequence_ = 10;
};

// Buckets of at least 2 MiB, on one host: of tensors of so many KiB on a device.
std::vector<Bucket> Cut(DeviceKind device, const std::vector<int64_t>& kibibytes,
                        bool across_hosts = false) {
  std::vector<StepItem> step;
  for (const int64_t size : kibibytes) {
    step.push_back({static_cast<CacheId>(step.size()), size << 10, 7, 5, true, device});
  }
  return CutStep(step, /*trusting=*/true, /*bucket_bytes=*/2 << 20, across_hosts);
}

// Between hosts a bucket is a quarter of that, and the last one at most 1 MiB.
TEST(BucketsBetweenHostsAreSmaller) {
  EXPECT_EQ(Cut(DeviceKind::kHost, {256, 256, 2048, 128, 128}, true),
            (std::vector<Bucket>{{0, 1}, {2}, {3, 4}}));
  EXPECT_EQ(Cut(DeviceKind::kHost, {256, 1024}, true), (std::vector<Bucket>{{0}, {1}}));
  EXPECT_EQ(Cut(DeviceKind::kHost, {256, 1025}, true), (std::vector<Bucket>{{0, 1}}));
  EXPECT_EQ(Cut(DeviceKind::kGpu, {2048, 2048, 2048, 512}, true),
            (std::vector<Bucket>{{0, 1, 2}, {3}}));
}

// On a GPU a bucket is three times as large, and the last one small.
TEST(BucketsOfAGpuAreLargerAndTheLastIsSmall) {
  const std::vector<int64_t> sizes = {2048, 2048, 2048, 2048, 512, 256};
  EXPECT_EQ(Cut(DeviceKind::kHost, sizes), (std::vector<Bucket>{{0}, {1}, {2}, {3}, {4, 5}}));
  EXPECT_EQ(Cut(DeviceKind::kGpu, sizes), (std::vector<Bucket>{{0, 1, 2}, {3}, {4, 5}}));
  EXPECT_EQ(Cut(DeviceKind::kGpu, {512, 256}), (std::vector<Bucket>{{0, 1}}));
  EXPECT_EQ(Cut(DeviceKind::kGpu, {2048, 1025}), (std::vector<Bucket>{{0, 1}}));
}

TEST(AStepSeenThreeTimesRepeats) {
  Program program;
  program.Steps(1, {1, 2, 3});
  EXPECT_FALSE(program.detector.Repeats());
  program.Steps(1, {1, 2, 3});  // only its first item shows that the first step was whole
  EXPECT_FALSE(program.detector.Repeats());
  program.Steps(1, {3, 1, 2});
  EXPECT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Schedule().size(), size_t{1});
  EXPECT_EQ(program.detector.Schedule()[0], (Bucket{3, 1, 2}));  // the order of the last time
}

TEST(NothingRepeatsInTheMiddleOfAStep) {
  Program program;
  program.Steps(5, {1, 2, 3});
  program.Together({1});
  EXPECT_FALSE(program.detector.Repeats());
  program.Together({2});
  EXPECT_FALSE(program.detector.Repeats());
  program.Together({3});
  EXPECT_TRUE(program.detector.Repeats());
}

TEST(AnotherStepBeginsTheCountAnew) {
  Program program;
  program.Steps(4, {1, 2});
  EXPECT_TRUE(program.detector.Repeats());
  program.Steps(1, {1, 3});  // without 2, with 3
  program.Steps(1, {1, 3});
  EXPECT_FALSE(program.detector.Repeats());
  program.Steps(1, {1, 3});
  EXPECT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Schedule()[0], (Bucket{1, 3}));
}

TEST(AStepWithATensorMoreNowAndThenIsNotLocked) {
  Program program;
  for (int step = 0; step < 30; ++step) {
    program.Together({1, 2});
    if (step % 2 == 1) program.Together({9});
    if (program.detector.Repeats()) EXPECT_TRUE(step < 2);
  }
}

TEST(WhatIsNoPlainRepeatDisturbs) {
  Program program;
  program.Steps(4, {1, 2});
  program.detector.Disturbed();
  EXPECT_FALSE(program.detector.Repeats());
  program.Steps(2, {1, 2});
  EXPECT_FALSE(program.detector.Repeats());
  program.Steps(2, {1, 2});
  EXPECT_TRUE(program.detector.Repeats());
}

TEST(ALoneTensorIsAStep) {
  Program program;
  program.Steps(4, {7});
  EXPECT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Schedule()[0], (Bucket{7}));
}

TEST(ABucketTakesNoMoreOnceItIsLarge) {
  Program program;
  for (int i = 0; i < 4; ++i) program.Together({1, 2, 3, 4, 5}, 4 << 20);
  const std::vector<Bucket> buckets = program.detector.Schedule();
  ASSERT_EQ(buckets.size(), size_t{3});
  EXPECT_EQ(buckets[0], (Bucket{1, 2}));
  EXPECT_EQ(buckets[1], (Bucket{3, 4}));
  EXPECT_EQ(buckets[2], (Bucket{5}));
}

TEST(WhatMayWaitForAResultIsKeptApart) {
  Program program;
  for (int i = 0; i < 4; ++i) {
    program.Together({1}, 4, false, false);  // say, a barrier
    program.Together({2, 3});
    program.Together({4});                   // a reduction after reductions
    program.Together({5}, 4, false, false);  // a broadcast of something
    program.Together({6}, 4, true, false);   // another, announced before 5 was agreed
  }
  const std::vector<Bucket> buckets = program.detector.Schedule();
  ASSERT_EQ(buckets.size(), size_t{3});
  EXPECT_EQ(buckets[0], (Bucket{1}));
  EXPECT_EQ(buckets[1], (Bucket{2, 3, 4}));
  EXPECT_EQ(buckets[2], (Bucket{5, 6}));
}

TEST(ReductionsAreTrustedUntilABucketDidNotFill) {
  Program program;
  const auto steps = [&program] {
    for (int i = 0; i < 8; ++i) {
      program.Together({1, 2});
      program.Together({3});
    }
  };
  steps();
  ASSERT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Lock().size(), size_t{1});
  program.detector.Ended(0, true);
  steps();
  ASSERT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Schedule().size(), size_t{2});
}

constexpr int64_t kForEver = 0;

// Two reductions that are agreed one after the other: so they share a bucket only with trust.
void Apart(Program* program, int times) {
  for (int i = 0; i < times; ++i) {
    program->Together({1});
    program->Together({2});
  }
}

// The buckets of the schedule that has been locked; by then its step has come often enough.
size_t LockApart(Program* program) {
  int steps = 0;
  while (!program->detector.Repeats() && ++steps < 1000) Apart(program, 1);
  return program->detector.Lock().size();
}

TEST(ReductionsAreTrustedAgainOnceDoubtHasServed) {
  Program program;
  EXPECT_EQ(LockApart(&program), size_t{1});
  EXPECT_EQ(program.detector.term(), kForEver);
  program.detector.Ended(20, true);
  EXPECT_EQ(LockApart(&program), size_t{2});
  EXPECT_EQ(program.detector.term(), 2 * Trust::kFewestSteps);
  program.detector.Ended(2 * 24, false);  // between two steps: a metric came
  Apart(&program, 1);
  ASSERT_TRUE(program.detector.Repeats());  // it has resumed, as it was
  EXPECT_EQ(program.detector.Lock().size(), size_t{2});
  EXPECT_EQ(program.detector.term(), 2 * (Trust::kFewestSteps - 24));
  program.detector.Ended(program.detector.term(), false);
  Apart(&program, 1);
  EXPECT_FALSE(program.detector.Repeats());  // it does not resume, to be cut anew
  EXPECT_EQ(LockApart(&program), size_t{1});
  EXPECT_EQ(program.detector.term(), kForEver);
}

TEST(AScheduleThatDoubtDoesNotChangeHasNoTerm) {
  Program program;
  EXPECT_EQ(LockApart(&program), size_t{1});
  program.detector.Ended(20, true);
  program.Steps(40, {4, 5, 6});  // agreed together, announced together
  ASSERT_TRUE(program.detector.Repeats());
  program.detector.Lock();
  EXPECT_EQ(program.detector.term(), kForEver);
}

TEST(DoubtLastsTwiceAsLongEachTimeUntilTrustHasPaid) {
  Trust trust;
  EXPECT_TRUE(trust.given());
  trust.Ended(3, false, true);  // it had no part in that
  EXPECT_TRUE(trust.given());
  for (const int64_t steps : {64, 128, 256}) {
    trust.Ended(0, true, true);
    EXPECT_EQ(trust.left(), steps);
    trust.Ended(steps - 1, false, false);
    EXPECT_FALSE(trust.given());
    trust.Ended(1, false, true);
    EXPECT_TRUE(trust.given());
  }
  trust.Ended(511, true, true);
  EXPECT_EQ(trust.left(), int64_t{512});
  trust.Ended(512, false, false);
  trust.Ended(1024, true, true);  // late at last, but that was long enough
  EXPECT_EQ(trust.left(), Trust::kFewestSteps);
  for (int i = 0; i < 40; ++i) trust.Ended(0, true, true);
  EXPECT_EQ(trust.left(), Trust::kMostSteps);
}

TEST(ALongGapIsForgottenWhereItWasTheOnlyOne) {
  constexpr double kShort = 0.0625;  // these have no rounding errors
  Gaps gaps;
  double now = 0.0;
  gaps.Came(now, true);
  const auto wait = [&](double seconds) { gaps.Came(now += seconds, false); };
  const auto run = [&](int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) {
      wait(kShort);
      gaps.StepRan();
    }
  };
  run(10);
  wait(5.0);
  run(Gaps::kSteps);
  EXPECT_EQ(gaps.longest(), 5.0);
  run(Gaps::kSteps);
  EXPECT_EQ(gaps.longest(), kShort);
  for (int i = 0; i < 10; ++i) {  // now and then
    wait(1.0);
    run(Gaps::kSteps - 1);
    EXPECT_EQ(gaps.longest(), 1.0);
  }
}

TEST(TheTimeInWhichNothingIsPendingIsNoGap) {
  Gaps gaps;
  gaps.Came(1.0, true);
  gaps.Came(9.0, true);
  EXPECT_EQ(gaps.longest(), 0.0);
  gaps.BucketRan(10.0);
  gaps.Came(10.5, false);
  EXPECT_EQ(gaps.longest(), 0.5);
  EXPECT_EQ(gaps.last(), 10.5);
}

TEST(TheFirstStepsOfALockAreNotMeasured) {
  StepPeriods periods;
  const auto run = [&periods](double first, int times) {
    periods.Begin();
    double now = 100.0;
    for (int64_t i = 0; i < StepPeriods::kFirst; ++i) periods.StepRan(now += first);
    for (int i = 0; i < times; ++i) periods.StepRan(now += 0.25);
  };
  run(9.0, 4);
  EXPECT_EQ(periods.typical(), 0.0);  // too few
  run(9.0, 5);
  EXPECT_EQ(periods.typical(), 0.25);
  run(0.5, 2000);
  EXPECT_EQ(periods.typical(), 0.25);
}

TEST(ASlowMomentDoesNotChangeWhatIsTypical) {
  StepPeriods periods;
  periods.Begin();
  double now = 0.0;
  for (int i = 0; i < 20; ++i) periods.StepRan(now += i % 8 == 7 ? 5.0 : 0.5);
  EXPECT_EQ(periods.typical(), 0.5);
}

TEST(AScheduleThatHardlyPaysIsTriedLessAndLessOften) {
  Program program;
  int64_t needed = 0;
  for (int attempt = 0; attempt < 6; ++attempt) {
    int64_t steps = 0;
    do {
      program.Together({1, 2});
      ++steps;
    } while (!program.detector.Repeats());
    EXPECT_TRUE(steps > needed);
    needed = steps;
    program.detector.Lock();
    program.detector.Ended(1, false);
  }
  EXPECT_TRUE(needed > 50);
}

// One that was locked, of a bucket or several, and has served so many turns.
void LockOnce(Program* program, int64_t turns, bool late = false, int64_t bytes = 4) {
  for (int i = 0; i < 4; ++i) program->Together({1, 2, 3}, bytes);
  ASSERT_TRUE(program->detector.Repeats());
  program->detector.Lock();
  EXPECT_FALSE(program->detector.Repeats());
  program->detector.Ended(turns, late);
}

TEST(AStepThatPaidResumesAsItWasOnceItHasCome) {
  Program program;
  LockOnce(&program, 2);
  for (int attempt = 0; attempt < 6; ++attempt) {
    if (attempt % 2 == 0) {
      program.Together({9});  // a metric
    } else {
      program.detector.Disturbed();  // a new one
    }
    program.Together({2});
    EXPECT_FALSE(program.detector.Repeats());
    program.Together({3, 1});
    ASSERT_TRUE(program.detector.Repeats());
    EXPECT_EQ(program.detector.Lock(), (std::vector<Bucket>{{1, 2, 3}}));
    program.detector.Ended(2, false);
  }
}

TEST(AStepThatHasResumedIsCutAnewForOtherBuckets) {
  Program program;
  for (int i = 0; i < 4; ++i) program.Together({1, 2, 3, 4}, 4 << 20);
  EXPECT_EQ(program.detector.Schedule(1 << 20).size(), size_t{4});
  EXPECT_EQ(program.detector.Lock(8 << 20, 20).size(), size_t{2});
  EXPECT_EQ(program.detector.term(), int64_t{40});
  program.detector.Ended(40, false);
  program.Together({4, 3, 2, 1}, 4 << 20);
  ASSERT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.step().size(), size_t{4});
  EXPECT_EQ(program.detector.Lock(64 << 20, 10), (std::vector<Bucket>{{1, 2, 3, 4}}));
  EXPECT_EQ(program.detector.term(), int64_t{10});
  program.detector.Ended(10, false);
  program.Together({1, 2, 3, 4}, 4 << 20);
  ASSERT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Lock(1).size(), size_t{4});
  EXPECT_EQ(program.detector.term(), kForEver);
}

TEST(DoubtEndsABlockThatIsLonger) {
  Program program;
  EXPECT_EQ(LockApart(&program), size_t{1});
  program.detector.Ended(20, true);
  const auto lock = [&program](int64_t steps) {
    int ran = 0;
    while (!program.detector.Repeats() && ++ran < 1000) Apart(&program, 1);
    program.detector.Lock(8 << 20, steps);
    return program.detector.term();
  };
  EXPECT_EQ(lock(1000), 2 * Trust::kFewestSteps);
  program.detector.Ended(2 * 10, false);
  EXPECT_EQ(lock(7), int64_t{14});
}

TEST(AnotherOneInItsMidstShowsThatItIsAnotherStep) {
  for (const Bucket& step : {Bucket{1, 9, 2, 3}, Bucket{1, 1, 2, 3}}) {
    Program program;
    LockOnce(&program, 2);
    program.Together(step);
    EXPECT_FALSE(program.detector.Repeats());
    program.Together({1, 2, 3});
    EXPECT_FALSE(program.detector.Repeats());
  }
  Program program;
  LockOnce(&program, 2);
  program.Together({1, 2});
  program.detector.Disturbed();
  program.Together({3});
  EXPECT_FALSE(program.detector.Repeats());
}

TEST(TwoProgramsInTurnHaveASchedule) {  // training and evaluation
  Program program;
  LockOnce(&program, 50);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (const Bucket& step : {Bucket{7, 8}, Bucket{1, 2, 3}}) {
      int steps = 0;
      do {
        program.Together(step);
        ++steps;
      } while (!program.detector.Repeats());
      EXPECT_EQ(steps, epoch == 0 && step.size() == 2 ? 3 : 1);
      EXPECT_EQ(program.detector.Lock(), (std::vector<Bucket>{step}));
      program.detector.Ended(50, false);
    }
  }
}

TEST(AStepThatDoesNotPayTakesNothingFromAnother) {
  Program program;
  LockOnce(&program, 50);
  for (int i = 0; i < 40; ++i) {  // a lone metric comes several times in a row, never often enough
    program.Steps(4, {9});
    if (program.detector.Repeats()) {
      program.detector.Lock();
      program.detector.Ended(0, false);
    }
    program.Together({1, 2, 3});
    ASSERT_TRUE(program.detector.Repeats());
    program.detector.Lock();
    program.detector.Ended(50, false);
  }
  program.Steps(4, {9});
  EXPECT_FALSE(program.detector.Repeats());
}

TEST(OneThatEndedBetweenItsBucketsIsNotResumed) {
  for (const int64_t turns : {6, 7}) {
    Program program;
    LockOnce(&program, turns, false, 8 << 20);  // three buckets
    program.Together({1, 2, 3});
    EXPECT_EQ(program.detector.Repeats(), turns == 6);
  }
}

TEST(NothingIsCountedFromTheMidstOfAStepOn) {
  Program program;
  LockOnce(&program, 7, false, 8 << 20);
  program.Together({2, 3});  // the rest of the step whose first bucket has run
  for (int step = 0; step < 2; ++step) {
    program.Together({1});
    program.Together({2, 3});
    EXPECT_FALSE(program.detector.Repeats());
  }
  program.Together({1});
  EXPECT_FALSE(program.detector.Repeats());
  program.Together({2, 3});
  ASSERT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Schedule()[0][0], CacheId{1});
}

TEST(AScheduleThatNeverRanLeavesTheCountAsItWas) {
  Program program;
  program.Steps(4, {1});
  program.detector.Lock();
  program.detector.Ended(50, false);
  program.Together({1});  // the first of a longer step now, but that cannot be known
  ASSERT_TRUE(program.detector.Repeats());
  program.detector.Lock();
  program.detector.Ended(0, false);
  program.Together({2, 3});
  for (int step = 0; step < 2; ++step) {
    EXPECT_FALSE(program.detector.Repeats());
    program.Together({1});
    EXPECT_FALSE(program.detector.Repeats());
    program.Together({2, 3});
  }
  ASSERT_TRUE(program.detector.Repeats());
  EXPECT_EQ(program.detector.Schedule(), (std::vector<Bucket>{{1, 2, 3}}));
}

TEST(OneThatDidNotPayOrFillIsForgotten) {
  for (const bool late : {false, true}) {
    Program program;
    LockOnce(&program, late ? 15 : 1, late);
    program.Steps(4, {1, 2, 3});
    EXPECT_FALSE(program.detector.Repeats());
    program.Steps(4, {1, 2, 3});
    EXPECT_TRUE(program.detector.Repeats());
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
