// Fingerprints of bytes: what must differ does, at any length and alignment.
#include "cc/base/fingerprint.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

std::vector<char> Bytes(size_t size) {
  std::vector<char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 37 + 11);
  return bytes;
}

uint64_t Of(const std::vector<char>& bytes) { return Fingerprint(bytes.data(), bytes.size()); }

TEST(EachBitCountsAtEachLength) {
  for (size_t size : {1, 7, 8, 9, 63, 64, 65, 130, 200}) {
    std::vector<char> bytes = Bytes(size);
    std::set<uint64_t> seen = {Of(bytes)};
    for (size_t bit = 0; bit < size * 8; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      seen.insert(Of(bytes));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    }
    EXPECT_EQ(seen.size(), size * 8 + 1);
  }
}

TEST(TwoSignsDoNotCancel) {
  const std::vector<char> bytes = Bytes(512);
  std::set<uint64_t> seen = {Of(bytes)};
  size_t made = 1;
  for (size_t a = 3; a < bytes.size(); a += 4) {
    for (size_t b = a + 4; b < bytes.size(); b += 4) {
      std::vector<char> flipped = bytes;
      flipped[a] = static_cast<char>(flipped[a] ^ 0x80);
      flipped[b] = static_cast<char>(flipped[b] ^ 0x80);
      seen.insert(Of(flipped));
      ++made;
    }
  }
  EXPECT_EQ(seen.size(), made);
}

TEST(LengthAndOrderCount) {
  std::set<uint64_t> seen;
  for (size_t size = 0; size <= 300; ++size) seen.insert(Of(std::vector<char>(size)));
  EXPECT_EQ(seen.size(), size_t{301});
  std::vector<char> bytes = Bytes(256);
  const uint64_t before = Of(bytes);
  std::swap(bytes[0], bytes[64]);
  EXPECT_TRUE(Of(bytes) != before);
  EXPECT_EQ(Fingerprint(nullptr, 0), Of({}));
}

TEST(AlignmentDoesNotCount) {
  const std::vector<char> bytes = Bytes(200);
  std::vector<char> moved(201);
  std::memcpy(moved.data() + 1, bytes.data(), bytes.size());
  EXPECT_EQ(Fingerprint(moved.data() + 1, bytes.size()), Of(bytes));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
