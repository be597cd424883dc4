// A steady step's messages: how many there are, and that neither their number nor their size
// depends on what the tensors are called.
#include "tests/core/growth.h"

#include <string>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(ALoneTensorCostsAtMostOneMessageToAndFromEachRank) {
  for (int ranks : {1, 2, 3, 8, 16}) {
    Steady how;
    how.ranks = ranks;
    how.may_vote = false;
    const Growth growth = MeasureGrowth(how);
    const int64_t others = ranks - 1;
    EXPECT_TRUE(growth.traffic[0].received <= others * how.steps);
    EXPECT_TRUE(growth.traffic[0].sent <= others * how.steps);
    for (size_t r = 1; r < growth.traffic.size(); ++r) {
      EXPECT_TRUE(growth.traffic[r].sent <= how.steps);
      EXPECT_TRUE(growth.traffic[r].received <= how.steps);
      // Nothing is said between ranks other than with rank 0.
      EXPECT_TRUE(growth.traffic[r].bytes() <= 24 * how.steps);
    }
  }
}

TEST(WhatIsKnownTravelsByNumber) {
  Steady brief;
  brief.ranks = 4;
  brief.may_vote = false;
  Steady wordy = brief;
  wordy.prefix = std::string(500, 'x');
  // No time passes: an agreement has a byte or two more where it says which rank came last.
  const std::vector<Traffic> a = CountSteps(brief).traffic;
  const std::vector<Traffic> b = CountSteps(wordy).traffic;
  for (size_t r = 0; r < a.size(); ++r) {
    EXPECT_TRUE(a[r].messages() > 0);
    EXPECT_EQ(a[r].messages(), b[r].messages());
    EXPECT_EQ(a[r].bytes(), b[r].bytes());
  }
}

TEST(AStepThatRepeatsNeedsNoMessages) {
  for (const int ranks : {2, 8, 16}) {
    Steady how;
    how.ranks = ranks;
    how.tensors = 10;
    how.steps = 60;
    const std::vector<Traffic> traffic = CountSteps(how).traffic;
    for (const Traffic& of_rank : traffic) {
      EXPECT_EQ(of_rank.messages(), int64_t{0});
      EXPECT_EQ(of_rank.votes, int64_t{how.steps});
    }
  }
}

// To how many others a leader sends in a round of votes: to all of few, else in log2(hosts) hops.
int64_t PeersOf(int hosts) {
  if (hosts <= 8) return hosts - 1;
  int64_t hops = 0;
  while (1 << hops < hosts) ++hops;
  return hops;
}

// On several hosts a message goes out from each leader to each of these peers, and one comes in,
// whatever the number of tensors and of ranks; none to or from others.
TEST(AStepThatRepeatsOverHostsGrowsWithTheLogarithmOfTheirNumber) {
  for (const int hosts : {2, 3, 8, 9}) {
    Steady how;
    how.ranks = 2 * hosts;
    how.on_a_host = 2;
    how.tensors = 10;
    how.steps = 60;
    const int64_t peers = PeersOf(hosts);
    const std::vector<Traffic> traffic = CountSteps(how).traffic;
    for (size_t r = 0; r < traffic.size(); ++r) {
      const int64_t leads = r % 2 == 0 ? 1 : 0;
      EXPECT_EQ(traffic[r].messages(), 2 * peers * how.steps * leads);
      EXPECT_TRUE(traffic[r].bytes() <= 8 * traffic[r].messages());
      EXPECT_EQ(traffic[r].votes, int64_t{how.steps});
    }
  }
}

TEST(LeadersNeedALogarithmOfMessages) {
  constexpr int kTurns = 3;
  for (const int hosts : {1, 2, 3, 1000, 10000}) {
    const int64_t peers = PeersOf(hosts);
    const Traffic traffic = PlayLeaders(hosts, kTurns).traffic[0];
    EXPECT_EQ(traffic.sent, peers * kTurns);
    EXPECT_EQ(traffic.received, peers * kTurns);
    EXPECT_TRUE(traffic.bytes() <= 2 * peers * kTurns * 4);
  }
}

TEST(TheStarIsLinearInBytesAtRankZero) {
  const int steps = 3;
  for (int tensors : {1, 100}) {
    const Growth small = PlayStar(2, tensors, steps);
    const Growth large = PlayStar(1001, tensors, steps);
    EXPECT_EQ(small.traffic[0].received, int64_t{steps});
    EXPECT_EQ(large.traffic[0].received, int64_t{1000 * steps});
    EXPECT_EQ(large.traffic[0].sent, int64_t{1000 * steps});
    EXPECT_EQ(large.traffic[0].bytes(), 1000 * small.traffic[0].bytes());
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
