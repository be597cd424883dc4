// Who has announced what, by hand: what is complete, in which order, and what joining changes.
#include "cc/negotiate/tally.h"

#include <memory>
#include <string>
#include <vector>

#include "cc/negotiate/stall_report.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

class ThreeRanks {
 public:
  Slot* Open(const std::string& name) {
    return tally.Open({0, name},
                      std::make_shared<const std::vector<int>>(std::vector<int>{0, 1, 2}));
  }

  void Add(Slot* slot, const std::vector<int>& ranks, Collective kind = Collective::kAllReduce,
           double now = 0.0) {
    for (const int rank : ranks) {
      Request request;
      request.kind = kind;
      request.key = slot->key;
      request.tensors = {{DType::kFloat32, {4}}};
      tally.AddInFull(slot, rank, std::move(request), 0, now);
    }
  }

  // The names of what one round hands out.
  std::vector<std::string> Round() {
    std::vector<std::string> names;
    tally.BeginRound();
    while (Slot* const slot = tally.NextComplete()) {
      names.push_back(slot->key.name);
      tally.Clear(slot);
    }
    return names;
  }

  Tally tally{3};
};

using Names = std::vector<std::string>;

TEST(CompleteOnesComeInTheOrderOfCompletion) {
  ThreeRanks job;
  Slot* const a = job.Open("a");
  Slot* const b = job.Open("b");
  job.Add(a, {0, 1});
  job.Add(b, {2, 1, 0}, Collective::kAllReduce, 7.0);
  job.Add(a, {2}, Collective::kAllReduce, 9.0);
  EXPECT_EQ(job.tally.complete(), 2);
  EXPECT_EQ(job.tally.complete_since(), 7.0);
  EXPECT_TRUE(job.Round() == Names({"b", "a"}));
  EXPECT_EQ(job.tally.complete() + job.tally.open(), 0);
}

TEST(WhatIsTakenBackIsOpenAgain) {
  ThreeRanks job;
  Slot* const a = job.Open("a");
  job.Add(a, {0, 1, 2});
  job.tally.Remove(a, 1);
  EXPECT_EQ(job.tally.complete(), 0);
  EXPECT_EQ(job.tally.open(), 1);
  EXPECT_TRUE(job.Round().empty());
  job.tally.Remove(a, 0);
  job.tally.Remove(a, 2);
  EXPECT_EQ(job.tally.open(), 0);
}

TEST(WhoCameLastIsTheOneThatWasWaitedFor) {
  ThreeRanks job;
  Slot* const a = job.Open("a");
  job.Add(a, {2, 0}, Collective::kAllReduce, 1.0);
  job.Add(a, {1}, Collective::kAllReduce, 2.0);
  EXPECT_EQ(a->waited_for, 1);
  // Taken back, and announced once more: it is the other one that was late then.
  job.tally.Remove(a, 2);
  job.Add(a, {2}, Collective::kAllReduce, 3.0);
  EXPECT_EQ(a->waited_for, 2);
  // Two that come at one time: nobody knows which was the last.
  Slot* const b = job.Open("b");
  job.Add(b, {0}, Collective::kAllReduce, 4.0);
  job.Add(b, {1, 2}, Collective::kAllReduce, 5.0);
  EXPECT_TRUE(b->complete);
  EXPECT_EQ(b->waited_for, -1);
}

TEST(WhoJoinsInsteadWasWaitedFor) {
  ThreeRanks job;
  Slot* const a = job.Open("a");
  job.Add(a, {0, 1}, Collective::kAllReduce, 1.0);
  job.Add(job.Open("join"), {2}, Collective::kJoin, 2.0);
  EXPECT_EQ(a->waited_for, 2);
  job.tally.Clear(a);
  job.Add(a, {1}, Collective::kAllReduce, 3.0);
  job.Add(a, {0}, Collective::kAllReduce, 4.0);
  EXPECT_EQ(a->waited_for, 0);
}

TEST(WhoIsAloneWaitsForNobody) {
  ThreeRanks job;
  Slot* const a = job.tally.Open({1, "a"}, std::make_shared<const std::vector<int>>(1, 2));
  job.Add(a, {2});
  EXPECT_TRUE(a->complete);
  EXPECT_EQ(a->waited_for, -1);
}

TEST(WhoHasJoinedIsNotWaitedFor) {
  ThreeRanks job;
  Slot* const a = job.Open("a");
  job.Add(a, {0, 1});
  EXPECT_EQ(job.tally.complete(), 0);
  job.Add(job.Open("join"), {2}, Collective::kJoin);
  EXPECT_EQ(job.tally.complete(), 1);
  EXPECT_TRUE(job.tally.Absent(*a) == std::vector<int>({2}));
  EXPECT_TRUE(job.Round() == Names({"a"}));
}

TEST(WhoTakesBackThatItJoinedIsWaitedForAgain) {
  ThreeRanks job;
  job.Add(job.Open("a"), {0, 1});
  Slot* const join = job.Open("join");
  job.Add(join, {2}, Collective::kJoin);
  job.tally.Remove(join, 2);
  EXPECT_EQ(job.tally.complete(), 0);
  EXPECT_EQ(job.tally.open(), 1);
}

// In one round: the end of a join, after which "late" lacks a rank again.
TEST(ARoundLeavesOutWhatLacksRanksMeanwhile) {
  ThreeRanks job;
  Slot* const join = job.Open("join");
  job.Add(join, {0}, Collective::kJoin);
  job.Add(job.Open("early"), {1, 2});
  job.Add(job.Open("late"), {1, 2});
  Names names;
  job.tally.BeginRound();
  while (Slot* const slot = job.tally.NextComplete()) {
    names.push_back(slot->key.name);
    job.tally.Clear(slot);
    job.tally.WaitForEveryone();
  }
  EXPECT_TRUE(names == Names({"early"}));
  EXPECT_TRUE(job.Round().empty());
}

TEST(ALockVoidsEverything) {
  ThreeRanks job;
  Slot* const numbered = job.Open("numbered");
  numbered->id = 5;
  job.Add(numbered, {0, 1});
  job.Add(job.Open("complete"), {0, 1, 2});
  job.Add(job.Open("join"), {2}, Collective::kJoin);
  job.tally.ClearAll();
  EXPECT_EQ(job.tally.open() + job.tally.complete(), 0);
  EXPECT_TRUE(job.tally.joined().empty());
  EXPECT_TRUE(job.tally.Find({0, "numbered"}) == numbered);
  EXPECT_TRUE(job.tally.Find({0, "complete"}) == nullptr);
  EXPECT_TRUE(job.Round().empty());
}

TEST(EachStallIsReportedOnce) {
  ThreeRanks job;
  const std::vector<std::string> hosts{"h0", "h0", "h1"};
  const StallTimes times{10.0, 30.0};
  job.Add(job.Open("a"), {0, 1});
  EXPECT_TRUE(ReportStalls(&job.tally, times, hosts, 4.0).anxious.empty());
  const StallReport early = ReportStalls(&job.tally, times, hosts, 6.0);
  EXPECT_TRUE(early.anxious == std::vector<int>({0, 1}));
  EXPECT_EQ(early.lines, "");
  const StallReport late = ReportStalls(&job.tally, times, hosts, 11.0);
  EXPECT_CONTAINS(late.lines, "not by ranks [2] (first on host h1)");
  EXPECT_EQ(late.fatal, "");
  const StallReport last = ReportStalls(&job.tally, times, hosts, 31.0);
  EXPECT_EQ(last.lines, "");
  EXPECT_CONTAINS(last.fatal, "stalled for longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS");
}

TEST(RanksThatWaitCrosswiseAreNamed) {
  ThreeRanks job;
  job.Add(job.Open("a"), {0, 2});
  job.Add(job.Open("b"), {1, 2});
  const StallReport report = ReportStalls(&job.tally, {10.0, 0.0}, {"h", "h", "h"}, 11.0);
  EXPECT_CONTAINS(report.cause, "Ranks wait for each other");
  EXPECT_EQ(report.fatal, "");
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
