// When the engine waits for more entries.
#include "cc/engine/batching_window.h"

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(TheFirstWindowAndALoneTensorNeverWait) {
  BatchingWindow window;
  EXPECT_FALSE(window.MoreLikely(1));
  for (int step = 0; step < 3; ++step) {
    EXPECT_FALSE(window.MoreLikely(1));
    window.Took(1);
    window.Ended();
  }
}

TEST(AWindowIsExpectedToBeAsLargeAsTheOneBefore) {
  BatchingWindow window;
  window.Took(3);
  window.Took(7);
  window.Ended();
  EXPECT_TRUE(window.MoreLikely(1));
  EXPECT_FALSE(window.MoreLikely(10));
  window.Took(6);
  EXPECT_TRUE(window.MoreLikely(3));
  EXPECT_FALSE(window.MoreLikely(4));
  window.Took(1);
  window.Ended();
  EXPECT_FALSE(window.MoreLikely(7));  // the last one had 7
}

TEST(NothingThereIsNothingToWaitFor) {
  BatchingWindow window;
  window.Took(5);
  window.Ended();
  window.Ended();  // idle rounds do not count
  EXPECT_FALSE(window.MoreLikely(0));
  EXPECT_TRUE(window.MoreLikely(1));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
