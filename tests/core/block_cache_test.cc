// The cache gives blocks out again, aligned and apart, and keeps no more than it says.
#include "cc/memory/block_cache.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(EverySizeIsAlignedAndOfUse) {
  BlockCache cache;
  std::vector<size_t> sizes = {0, 1, 63, 64, 65, BlockCache::kLargest - 1, BlockCache::kLargest};
  for (size_t size = 100; size < BlockCache::kLargest; size += size / 7) sizes.push_back(size);
  std::vector<char*> blocks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    blocks.push_back(static_cast<char*>(cache.Take(sizes[i])));
    ASSERT_TRUE(blocks[i] != nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks[i]) % BlockCache::kAlignment, uintptr_t{0});
    std::memset(blocks[i], static_cast<int>(i), sizes[i]);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (size_t byte : {size_t{0}, sizes[i] / 2, sizes[i] - 1}) {
      if (sizes[i] > 0) EXPECT_EQ(blocks[i][byte], static_cast<char>(i));
    }
    cache.Give(blocks[i], sizes[i]);
  }
}

TEST(GivesABlockOfTheSameSizeAgain) {
  BlockCache cache;
  void* const first = cache.Take(1000);
  void* const second = cache.Take(1000);
  cache.Give(first, 1000);
  cache.Give(second, 1000);
  EXPECT_TRUE(cache.kept() >= 2000 && cache.kept() < 2500);
  void* const other = cache.Take(100);
  EXPECT_TRUE(cache.Take(1000) == second);
  EXPECT_TRUE(cache.Take(1010) == first);  // which is as large
  EXPECT_EQ(cache.kept(), size_t{0});
  cache.Give(other, 100);
  cache.Give(first, 1010);
  cache.Give(second, 1000);
}

TEST(KeepsNoMoreThanItSays) {
  BlockCache cache;
  std::vector<void*> blocks;
  for (size_t bytes = 0; bytes <= 2 * BlockCache::kMostKept; bytes += BlockCache::kLargest) {
    blocks.push_back(cache.Take(BlockCache::kLargest));
  }
  for (void* block : blocks) cache.Give(block, BlockCache::kLargest);
  EXPECT_EQ(cache.kept(), BlockCache::kMostKept);
  cache.Trim();
  EXPECT_EQ(cache.kept(), size_t{0});
  cache.Give(cache.Take(5), 5);  // as good as new
}

TEST(OneThreadTakesAnotherGives) {
  BlockCache cache;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int round = 0; round < 200; ++round) {
        std::vector<char*> blocks;
        for (int i = 0; i < 20; ++i) {
          blocks.push_back(static_cast<char*>(cache.Take(500)));
          std::memset(blocks.back(), t, 500);
        }
        for (char* block : blocks) {
          EXPECT_EQ(block[499], static_cast<char>(t));
          cache.Give(block, 500);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
