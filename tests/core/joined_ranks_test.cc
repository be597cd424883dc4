// Who has joined a process set, as plain values.
#include "cc/negotiate/joined_ranks.h"

#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Who = std::vector<bool>;

TEST(WhoHasJoinedAllCountsInEverySet) {
  JoinedRanks joined(3);
  EXPECT_TRUE(joined.empty());
  joined.Join(2, 0, false);
  joined.Join(1, 7, false);
  EXPECT_TRUE(joined.Of(0) == (Who{false, false, true}));
  EXPECT_TRUE(joined.Of(7) == (Who{false, true, true}));
  EXPECT_TRUE(joined.Of(8) == (Who{false, false, true}));
  EXPECT_FALSE(joined.empty());
}

TEST(TheLastOneIsKnownWhenAllHaveJoined) {
  JoinedRanks joined(2);
  joined.Join(1, 0, false);
  joined.Join(0, 0, false);
  EXPECT_EQ(joined.Finish(0), 0);
  EXPECT_TRUE(joined.empty());
}

TEST(AskingToStopConcernsTheSetAndAllOfThoseBelowSetZero) {
  JoinedRanks joined(3);
  joined.Join(0, 5, true);
  joined.Join(1, 5, false);  // takes nothing back
  EXPECT_TRUE(joined.AskToStop(5));
  EXPECT_FALSE(joined.AskToStop(0));
  EXPECT_FALSE(joined.AskToStop(6));
  joined.Join(2, 0, true);
  EXPECT_TRUE(joined.AskToStop(6));
}

TEST(WhoTakesItBackIsWaitedForAgain) {
  JoinedRanks joined(2);
  joined.Join(0, 3, false);
  joined.Join(1, 3, false);
  joined.Withdraw(0, 3);
  joined.Withdraw(1, 4);  // of nobody
  EXPECT_TRUE(joined.Of(3) == (Who{false, true}));
  joined.Withdraw(1, 3);
  EXPECT_TRUE(joined.empty());
  EXPECT_FALSE(joined.Forget(3));
  joined.Join(1, 3, false);
  EXPECT_TRUE(joined.Forget(3));
  EXPECT_FALSE(joined.ForgetAll());
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
