// When everybody gets everybody's values: by the number of ranks, and by what the network can do.
#include "cc/collectives/transfer/gather_choice.h"

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Answer = GatherChoice::Answer;

TEST(TwoRanksSendNoMoreThanInBlocks) {
  const GatherChoice two(2);
  EXPECT_TRUE(two.Of(1) == Answer::kGather);
  EXPECT_TRUE(two.Of(512 << 10) == Answer::kGather);
  EXPECT_TRUE(two.Of((512 << 10) + 4) == Answer::kBlocks);
}

TEST(ManyRanksGatherWhatIsSmall) {
  const GatherChoice many(64);
  EXPECT_TRUE(many.Of(1 << 10) == Answer::kGather);
  EXPECT_TRUE(many.Of(1028) == Answer::kBlocks);
}

TEST(FewRanksMeasureWhereItMatters) {
  GatherChoice four(4);
  EXPECT_TRUE(four.Of(16 << 10) == Answer::kGather);
  EXPECT_TRUE(four.Of(100 << 10) == Answer::kMeasure);
  EXPECT_TRUE(four.Of(1 << 20) == Answer::kBlocks);
  four.SetWorth(150 << 10);
  EXPECT_TRUE(four.Of(100 << 10) == Answer::kGather);
  EXPECT_TRUE(four.Of(101 << 10) == Answer::kBlocks);
}

TEST(AWayIsWorthWhatTheNetworkCarriesInItsTime) {
  const GatherChoice four(4);
  const double carrying = 3.0 * GatherChoice::kProbeBytes / 125e6;  // 1 Gbit/s
  const int64_t far = four.WorthOfAWay(5e-3, 5e-3 + carrying);
  EXPECT_TRUE(far > 620000 && far < 630000);
  const int64_t near = four.WorthOfAWay(1e-4, 1e-4 + carrying);
  EXPECT_TRUE(near > 12000 && near < 13000);
  EXPECT_EQ(four.WorthOfAWay(1e-4, 1e-4), int64_t{1} << 20);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
