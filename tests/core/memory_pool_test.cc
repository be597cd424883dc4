// The pool gives blocks out again, keeps no more than was in use at once, and forgets an old peak.
#include "cc/memory/memory_pool.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(GivesTheSameBlockAgain) {
  MemoryPool pool;
  void* const first = pool.Take(3 * kMiB);
  ASSERT_TRUE(first != nullptr);
  std::memset(first, 1, 3 * kMiB);
  EXPECT_TRUE(pool.used() >= 3 * kMiB);
  pool.Give(first);
  EXPECT_EQ(pool.used(), size_t{0});
  void* const again = pool.Take(3 * kMiB);
  EXPECT_TRUE(again == first);
  EXPECT_EQ(pool.kept(), size_t{0});
  pool.Give(again);
}

TEST(BlocksInUseDoNotOverlap) {
  MemoryPool pool;
  std::vector<char*> blocks;
  for (size_t i = 0; i < 40; ++i) {
    const size_t bytes = (i % 7 + 1) * 300 * 1024;
    blocks.push_back(static_cast<char*>(pool.Take(bytes)));
    ASSERT_TRUE(blocks.back() != nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % 64, uintptr_t{0});
    std::memset(blocks.back(), static_cast<int>(i), bytes);
    if (i % 3 == 2) {
      pool.Give(blocks[i - 1]);
      blocks[i - 1] = nullptr;
    }
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == nullptr) continue;
    const size_t bytes = (i % 7 + 1) * 300 * 1024;
    EXPECT_EQ(blocks[i][0], static_cast<char>(i));
    EXPECT_EQ(blocks[i][bytes - 1], static_cast<char>(i));
    pool.Give(blocks[i]);
  }
}

TEST(AMuchLargerBlockIsNotWastedOnASmallOne) {
  MemoryPool pool;
  void* const large = pool.Take(8 * kMiB);
  pool.Give(large);
  void* const small = pool.Take(kMiB);
  EXPECT_TRUE(small != large);
  pool.Give(small);
}

TEST(HoldsNoMoreThanWasInUseAtOnce) {
  MemoryPool pool;
  size_t most = 0;
  for (size_t i = 1; i <= 30; ++i) {  // ever other sizes, one at a time
    void* const block = pool.Take(i * kMiB);
    most = std::max(most, pool.used());
    EXPECT_TRUE(pool.used() + pool.kept() <= most);
    pool.Give(block);
  }
}

TEST(ForgetsAnOldPeak) {
  MemoryPool pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.Take(4 * kMiB));
  for (void* block : blocks) pool.Give(block);
  EXPECT_EQ(pool.kept(), 32 * kMiB);
  for (int i = 0; i < 10000; ++i) pool.Give(pool.Take(4 * kMiB));
  EXPECT_EQ(pool.kept(), 4 * kMiB);
}

TEST(TrimGivesEverythingBack) {
  MemoryPool pool;
  void* const used = pool.Take(kMiB);
  pool.Give(pool.Take(2 * kMiB));
  pool.Trim();
  EXPECT_EQ(pool.kept(), size_t{0});
  EXPECT_EQ(pool.used(), kMiB);
  std::memset(used, 1, kMiB);
  pool.Give(used);
}

TEST(ThreadsShareIt) {
  MemoryPool pool;
  testing::RunThreads(4, [&pool](int thread) {
    for (int i = 0; i < 500; ++i) {
      const size_t bytes = kMiB / 4 + static_cast<size_t>(i % 5) * 70000;
      auto* const block = static_cast<char*>(pool.Take(bytes));
      block[0] = block[bytes - 1] = static_cast<char>(thread);
      EXPECT_EQ(block[0], static_cast<char>(thread));
      EXPECT_EQ(block[bytes - 1], static_cast<char>(thread));
      pool.Give(block);
    }
  });
  EXPECT_EQ(pool.used(), size_t{0});
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
