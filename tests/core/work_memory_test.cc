// Memory to work in: as much as was asked for of late.
#include "cc/memory/work_memory.h"

#include <cstdint>
#include <cstring>
#include <limits>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

constexpr int64_t kMuch = int64_t{1} << 30;

TEST(ItIsTheSameUntilMoreIsAskedFor) {
  WorkMemory memory;
  char* const first = memory.Get(1000);
  ASSERT_TRUE(first != nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, uintptr_t{0});
  std::memset(first, 'x', 1000);
  EXPECT_TRUE(memory.Get(0) == first && memory.Get(10) == first);
  EXPECT_EQ(first[999], 'x');
  EXPECT_TRUE(memory.Get(5000) != nullptr);
}

TEST(WhatNobodyAsksForIsGivenBack) {
  WorkMemory memory;
  ASSERT_TRUE(memory.Get(kMuch) != nullptr);
  memory.Trim();
  EXPECT_EQ(memory.capacity(), kMuch);  // it was asked for since the last time
  ASSERT_TRUE(memory.Get(kMuch / 2 + 64) != nullptr);
  memory.Trim();
  EXPECT_EQ(memory.capacity(), kMuch);
  ASSERT_TRUE(memory.Get(100 << 20) != nullptr);
  memory.Trim();
  EXPECT_EQ(memory.capacity(), int64_t{100 << 20});
  memory.Trim();
  EXPECT_EQ(memory.capacity(), WorkMemory::kLittle);
  memory.Trim();
  EXPECT_EQ(memory.capacity(), WorkMemory::kLittle);
}

TEST(WhatCannotBeHadChangesNothing) {
  WorkMemory memory;
  char* const first = memory.Get(1000);
  EXPECT_TRUE(memory.Get(std::numeric_limits<int64_t>::max() / 2) == nullptr);
  EXPECT_TRUE(memory.Get(1000) == first);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
