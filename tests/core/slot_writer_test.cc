// Pieces of all sizes, at all places, written into a slot by either way.
#include "cc/backends/shm/slot_writer.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

constexpr int64_t kSlot = 128 << 10;

void Check(StoreIn stores, const std::vector<int64_t>& pieces) {
  struct alignas(64) Slot {
    char bytes[kSlot];
  };
  const auto slot = std::make_unique<Slot>();
  const auto near = std::make_unique<SlotWriter::Near>();
  std::fill(std::begin(slot->bytes), std::end(slot->bytes), '\xee');
  std::string expected;
  std::string source(kSlot + 7, '\0');
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 31 + i / 251);
  SlotWriter writer(slot->bytes, stores, near.get());
  for (const int64_t piece : pieces) {
    const char* const from = source.data() + expected.size() % 7;  // not on a line
    writer.Add(from, piece);
    expected.append(from, static_cast<size_t>(piece));
  }
  writer.End();
  EXPECT_TRUE(expected == std::string(slot->bytes, expected.size()));
  EXPECT_TRUE(std::string(slot->bytes + expected.size(), kSlot - expected.size()) ==
              std::string(kSlot - expected.size(), '\xee'));
}

TEST(PiecesLieOneAfterTheOther) {
  for (const StoreIn stores : {StoreIn::kCaches, StoreIn::kMemory}) {
    Check(stores, {});
    Check(stores, {0, 1, 0});
    Check(stores, {kSlot});
    Check(stores, {100, 16 << 10, 1, 50000, 3});
    Check(stores, {16 << 10, 16 << 10, 64});
    Check(stores, {(16 << 10) - 1, 1, 5});
    Check(stores, std::vector<int64_t>(1000, 131));
    Check(stores, std::vector<int64_t>(128, 1 << 10));
  }
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
