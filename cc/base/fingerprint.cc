#include "cc/base/fingerprint.h"

#include <algorithm>
#include <cstring>

namespace tfhvd {
namespace {

constexpr size_t kLanes = 8;  // number of parallel multiplications
constexpr size_t kWord = sizeof(uint64_t);
constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
constexpr uint64_t kOther = 0xD6E8FEB86659FD93u;

// Bijective in `word` and in `sum`. A multiplication moves a bit only upwards, so the rotation and
// the shift bring high bits down: otherwise the signs of two numbers would cancel.
inline uint64_t Mix(uint64_t sum, uint64_t word) {
  uint64_t x = sum ^ word;
  x = ((x << 29) | (x >> 35)) * kOdd;
  return x ^ (x >> 29);
}

// Bijective; every bit of the result depends on every bit of `x`.
inline uint64_t Spread(uint64_t x) {
  x = (x ^ (x >> 32)) * kOther;
  x = (x ^ (x >> 32)) * kOther;
  return x ^ (x >> 32);
}

}  // namespace

uint64_t Fingerprint(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  uint64_t sums[kLanes];
  for (size_t i = 0; i < kLanes; ++i) sums[i] = Spread(kOdd * (i + 1));
  size_t left = bytes;
  uint64_t words[kLanes];
  for (; left >= sizeof(words); left -= sizeof(words), from += sizeof(words)) {
    std::memcpy(words, from, sizeof(words));
    for (size_t i = 0; i < kLanes; ++i) sums[i] = Mix(sums[i], words[i]);
  }
  for (size_t i = 0; left > 0; ++i) {
    const size_t part = std::min(left, kWord);
    uint64_t word = 0;
    std::memcpy(&word, from, part);
    sums[i] = Mix(sums[i], word);
    from += part;
    left -= part;
  }
  uint64_t all = Spread(bytes);
  for (const uint64_t sum : sums) all = Spread(all ^ Spread(sum)) + kOdd;
  return all;
}

}  // namespace tfhvd
