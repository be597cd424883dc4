// When the engine waits for more entries of a burst.
#include "cc/engine/batching_window.h"

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(TheFirstBurstAndALoneTensorNeverWait) {
  BatchingWindow burst;
  EXPECT_FALSE(burst.MoreLikely(1));
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(burst.MoreLikely(1));
    burst.Took(1);
    burst.Ended();
  }
}

TEST(ABurstIsExpectedToBeAsLargeAsTheOneBefore) {
  BatchingWindow burst;
  burst.Took(3);
  burst.Took(7);
  burst.Ended();
  EXPECT_TRUE(burst.MoreLikely(1));
  EXPECT_FALSE(burst.MoreLikely(10));
  burst.Took(6);
  EXPECT_TRUE(burst.MoreLikely(3));
  EXPECT_FALSE(burst.MoreLikely(4));
  burst.Took(1);
  burst.Ended();
  EXPECT_FALSE(burst.MoreLikely(7));  // the last one had 7
}

TEST(NothingThereIsNothingToWaitFor) {
  BatchingWindow burst;
  burst.Took(5);
  burst.Ended();
  burst.Ended();  // idle rounds do not count
  EXPECT_FALSE(burst.MoreLikely(0));
  EXPECT_TRUE(burst.MoreLikely(1));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
