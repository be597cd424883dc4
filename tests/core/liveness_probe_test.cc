// Who is named when ranks wait in the middle of a collective, and when.
#include "cc/negotiate/liveness_probe.h"

#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

const std::vector<std::string> kHosts = {"a", "a", "b", "c"};

// Ranks that wait say so, and those of `answering` answer, ten times a second until `end`; the
// first verdict, and when.
Status Play(LivenessProbe* call, const std::vector<int>& waiting, const std::vector<int>& answering,
            double end, double* at, std::string* warning) {
  const double interval = LivenessProbe::Interval(4.0, 8.0);
  double said = 0.0;
  for (double now = 0.1; now < end; now += 0.1) {
    *at = now;
    if (now - said >= interval) {
      said = now;
      for (const int rank : waiting) {
        call->Answered(rank);
        call->Waits(rank, "allreduce 'x'", now, now);
      }
    }
    for (const int asked : call->Ask(now)) {
      EXPECT_TRUE(asked != 0);
      for (const int rank : answering) {
        if (rank == asked) call->Answered(rank);
      }
    }
    const std::string more = call->TakeWarning(now);
    EXPECT_TRUE(more.empty() || warning->empty());  // once
    if (!more.empty()) *warning = more;
    const Status status = call->Check(now);
    if (!status.ok()) return status;
  }
  return Status::Ok();
}

TEST(WhoDoesNotAnswerIsNamedAtTheLimit) {
  LivenessProbe call(kHosts, 4.0, 8.0);
  double at = 0.0;
  std::string warning;
  const Status status = Play(&call, {0, 1}, {1, 2}, 20.0, &at, &warning);
  EXPECT_ERROR(status, StatusCode::kAborted, "rank 3 (host c) has not answered for");
  EXPECT_CONTAINS(status.message(), "while rank 0 has waited 8 s in the middle of allreduce 'x'");
  EXPECT_CONTAINS(warning, "rank 3 (host c) has not answered for");
  EXPECT_TRUE(at >= 8.0 && at < 8.3);
}

TEST(SeveralAreNamedTogether) {
  LivenessProbe call(kHosts, 4.0, 8.0);
  double at = 0.0;
  std::string warning;
  EXPECT_ERROR(Play(&call, {0}, {1}, 20.0, &at, &warning), StatusCode::kAborted,
               "ranks [2, 3] (first on host b) have not answered");
}

TEST(WhereAllAnswerNobodyIsAccused) {
  LivenessProbe call(kHosts, 4.0, 8.0);
  double at = 0.0;
  std::string warning;
  EXPECT_OK(Play(&call, {0, 1}, {1, 2, 3}, 60.0, &at, &warning));
  EXPECT_EQ(warning, "");
}

TEST(WithoutALimitThereIsAWarningOnly) {
  LivenessProbe call(kHosts, 4.0, 0.0);
  double at = 0.0;
  std::string warning;
  EXPECT_OK(Play(&call, {1}, {1, 2}, 60.0, &at, &warning));
  EXPECT_CONTAINS(warning, "rank 3");
}

TEST(NobodyIsAskedWhileNobodyWaits) {
  LivenessProbe call(kHosts, 4.0, 8.0);
  EXPECT_TRUE(call.Ask(1.0).empty());
  EXPECT_TRUE(call.wake_at() > 1e9);
  call.Waits(1, "allreduce 'x'", 0.6, 2.0);
  EXPECT_EQ(call.Ask(2.0).size(), size_t{3});
  EXPECT_TRUE(call.wake_at() <= 3.0);
  EXPECT_TRUE(call.Ask(100.0).empty());  // it has said no more: its wait is over
  EXPECT_TRUE(call.wake_at() > 1e9);
  EXPECT_OK(call.Check(100.0));
}

// The limit counts from the wait's begin, and a moment's silence at its end is no proof.
TEST(ARankThatHasJustGoneMissingIsNotNamedYet) {
  LivenessProbe call(kHosts, 4.0, 8.0);
  for (double now = 1.0; now < 8.5; now += 0.5) {
    call.Waits(1, "allreduce 'x'", now, now);
    for (const int asked : call.Ask(now)) {
      if (now < 6.0 || asked != 2) call.Answered(asked);
    }
    EXPECT_OK(call.Check(now));
  }
}

TEST(NothingIsCheckedWhereStallsAreNot) {
  LivenessProbe call(kHosts, 0.0, 0.0);
  call.Waits(1, "allreduce 'x'", 100.0, 100.0);
  EXPECT_TRUE(call.Ask(100.0).empty());
  EXPECT_OK(call.Check(1000.0));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
