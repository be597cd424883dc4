// How a rank chooses the stores for what others read, from times that are told.
#include "cc/backends/shm/store_choice.h"

#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

constexpr int64_t kBlock = 128 << 10;

// A machine on which a block takes so long, in microseconds, by either way.
struct Machine {
  double caches;
  double memory;
  double Of(StoreIn stores) const { return stores == StoreIn::kCaches ? caches : memory; }
};

constexpr Machine kNear{20.0, 21.0};
constexpr Machine kFar{70.0, 18.0};

// Takes `count` blocks there; how many of them went past the caches.
int Take(StoreChoice* choice, const Machine& machine, int count, int64_t bytes = kBlock) {
  int past = 0;
  for (int i = 0; i < count; ++i) {
    const StoreChoice::Block block = choice->Next(bytes);
    if (block.stores == StoreIn::kMemory) ++past;
    if (block.counts) choice->Took(block.stores, bytes, machine.Of(block.stores) * 1e-6);
  }
  return past;
}

TEST(GoesThroughTheCachesWhereTheyAreNear) {
  StoreChoice choice;
  const int past = Take(&choice, kNear, 20000);
  EXPECT_TRUE(choice.choice() == StoreIn::kCaches);
  EXPECT_TRUE(past > 0 && past < 200);  // it still looks now and then: a hundredth at most
}

TEST(GoesPastTheCachesWhereTheyAreFar) {
  StoreChoice choice;
  Take(&choice, kFar, 8);
  EXPECT_TRUE(choice.choice() == StoreIn::kMemory);
  const int past = Take(&choice, kFar, 20000);
  EXPECT_TRUE(past < 20000 && past > 19800);
}

TEST(FollowsARankThatMoves) {
  StoreChoice choice;
  for (int i = 0; i < 3; ++i) {
    Take(&choice, kNear, 4000);
    EXPECT_TRUE(choice.choice() == StoreIn::kCaches);
    Take(&choice, kFar, 4000);
    EXPECT_TRUE(choice.choice() == StoreIn::kMemory);
  }
}

TEST(StaysWhereADifferenceIsSmall) {
  StoreChoice choice;
  Take(&choice, {20.0, 16.0}, 4000);
  EXPECT_TRUE(choice.choice() == StoreIn::kCaches);
  Take(&choice, kFar, 4000);
  Take(&choice, {20.0, 17.0}, 4000);
  EXPECT_TRUE(choice.choice() == StoreIn::kMemory);
  Take(&choice, {20.0, 19.0}, 4000);
  EXPECT_TRUE(choice.choice() == StoreIn::kCaches);
}

// A core that does something else in the middle of one trial.
TEST(OneTrialThatWasDisturbedDecidesNothing) {
  StoreChoice choice;
  int trials = 0;
  bool before = false;
  for (int i = 0; i < 20000; ++i) {
    const StoreChoice::Block block = choice.Next(kBlock);
    if (block.counts && !before) ++trials;
    before = block.counts;
    const bool disturbed = trials % 8 >= 6 && block.stores == StoreIn::kCaches;  // of each fourth
    if (block.counts) {
      choice.Took(block.stores, kBlock, kNear.Of(block.stores) * (disturbed ? 100e-6 : 1e-6));
    }
    if (i > 100) EXPECT_TRUE(choice.choice() == StoreIn::kCaches);
  }
  EXPECT_TRUE(trials > 20);
}

// Ranks see the same sizes: they try the same way at the same time, whatever each of them finds.
TEST(RanksTryTogether) {
  StoreChoice near, far;
  for (int i = 0; i < 20000; ++i) {
    const int64_t bytes = i % 7 == 0 ? 4096 : i % 31 == 0 ? 2 * kBlock + 64 : kBlock - i % 5;
    const StoreChoice::Block a = near.Next(bytes);
    const StoreChoice::Block b = far.Next(bytes);
    ASSERT_TRUE(a.counts == b.counts);
    if (!a.counts) continue;
    ASSERT_TRUE(a.stores == b.stores);
    near.Took(a.stores, bytes, kNear.Of(a.stores));
    far.Took(b.stores, bytes, kFar.Of(b.stores));
  }
  EXPECT_TRUE(near.choice() == StoreIn::kCaches);
  EXPECT_TRUE(far.choice() == StoreIn::kMemory);
}

// A block of another size costs something else: it would be compared with what it is not.
TEST(ATrialIsOfBlocksOfAboutOneSize) {
  StoreChoice choice;
  for (int i = 0; i < 5000; ++i) {
    const int64_t bytes = i % 3 == 0 ? 4 * kBlock : kBlock;
    const StoreChoice::Block block = choice.Next(bytes);
    if (!block.counts) continue;
    const double size = bytes == kBlock ? 1.0 : 100.0;
    choice.Took(block.stores, bytes, size * kNear.Of(block.stores));
  }
  EXPECT_TRUE(choice.choice() == StoreIn::kCaches);
  Take(&choice, kFar, 100);  // and there is a trial as soon as there are such blocks
  EXPECT_TRUE(choice.choice() == StoreIn::kMemory);
}

TEST(SmallBlocksGoThroughTheCaches) {
  StoreChoice choice;
  EXPECT_EQ(Take(&choice, kFar, 5000, StoreChoice::kLeastBytes - 1), 0);
  Take(&choice, kFar, 100);
  EXPECT_EQ(Take(&choice, kFar, 5000, StoreChoice::kLeastBytes - 1), 0);
  EXPECT_TRUE(choice.choice() == StoreIn::kMemory);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
