// How long nothing is decided after an error, as plain values.
#include "cc/negotiate/error_epoch.h"

#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(ItLastsUntilEveryRankThatItConcernsHasConfirmedOrLeft) {
  ErrorEpoch epoch(4);
  std::vector<uint64_t> seen = {4, 4, 4, 4};
  std::vector<bool> left(4, false);
  EXPECT_TRUE(epoch.Missing(seen, left).empty());
  epoch.Begin(5, 1.0);
  for (const int rank : {0, 1, 3}) epoch.Concerns(rank);
  EXPECT_EQ(epoch.sequence(), uint64_t{5});
  EXPECT_TRUE(epoch.Missing(seen, left) == (std::vector<int>{0, 1, 3}));
  seen[0] = 5;
  left[3] = true;
  EXPECT_TRUE(epoch.Missing(seen, left) == (std::vector<int>{1}));
  seen[1] = 6;
  EXPECT_TRUE(epoch.Missing(seen, left).empty());
  EXPECT_EQ(epoch.sequence(), uint64_t{0});

  epoch.Begin(9, 2.0);  // concerns nobody of the last one
  epoch.Concerns(2);
  EXPECT_TRUE(epoch.Missing(seen, left) == (std::vector<int>{2}));
}

TEST(ItIsReportedOnceAndAnewTheNextTime) {
  ErrorEpoch epoch(2);
  epoch.Begin(1, 10.0);
  EXPECT_FALSE(epoch.Report(10.5, 1.0));
  EXPECT_TRUE(epoch.Report(11.0, 1.0));
  EXPECT_FALSE(epoch.Report(12.0, 1.0));
  epoch.Begin(2, 20.0);
  EXPECT_FALSE(epoch.Report(20.5, 1.0));
  EXPECT_TRUE(epoch.Report(21.5, 1.0));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
