// Inputs and outputs of the conformance suite: seeded values of every type, guarded buffers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cc/base/types.h"
#include "cc/numeric/arithmetic.h"
#include "cc/numeric/compat.h"
#include "cc/numeric/half.h"

namespace tfhvd {
namespace testing {

// A small fast generator (splitmix64) whose values depend on nothing but the seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

// A buffer with a guard behind it.
class Buffer {
 public:
  explicit Buffer(int64_t bytes, char fill = 0x5a)
      : bytes_(bytes), storage_(static_cast<size_t>(bytes) + kGuard, fill) {
    std::memset(storage_.data() + bytes, kMark, kGuard);
  }

  char* data() { return storage_.data(); }
  const char* data() const { return storage_.data(); }
  int64_t bytes() const { return bytes_; }

  bool intact() const {
    return std::all_of(storage_.end() - kGuard, storage_.end(), [](char c) { return c == kMark; });
  }

 private:
  static constexpr int kGuard = 64;
  static constexpr char kMark = 0x3c;
  int64_t bytes_;
  std::vector<char> storage_;
};

// Any value of the type; floats are finite, and what is going to be scaled stays small enough for
// the scaled value to be representable. Repeats after kPeriod elements, which divides no block size
// of any algorithm: making large inputs should not take longer than reducing them.
inline void FillRandom(Buffer* buffer, DType dtype, uint64_t seed, bool scaled) {
  constexpr int64_t kPeriod = 8191;
  Random random(seed);
  const int64_t item = ItemSize(dtype);
  const int64_t period = std::min(buffer->bytes(), kPeriod * item);
  for (int64_t at = 0; at < period; at += item) {
    uint64_t bits = random.Next();
    if (dtype == DType::kBool) bits &= 1;
    if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) bits &= ~uint64_t{0x4000};
    if ((dtype == DType::kInt64 || dtype == DType::kUInt64) && scaled) bits >>= 24;
    if (dtype == DType::kFloat32) {
      const float x = static_cast<float>(static_cast<int32_t>(bits)) * 3e-7f;
      std::memcpy(&bits, &x, sizeof x);
    }
    if (dtype == DType::kFloat64) {
      const double x = static_cast<double>(static_cast<int64_t>(bits)) * 1.7e-16;
      std::memcpy(&bits, &x, sizeof x);
    }
    std::memcpy(buffer->data() + at, &bits, static_cast<size_t>(item));
  }
  for (int64_t done = period; done < buffer->bytes();) {
    const int64_t n =
        std::min(done, buffer->bytes() - done);  // a multiple of the period, or the end
    std::memcpy(buffer->data() + done, buffer->data(), static_cast<size_t>(n));
    done += n;
  }
}

// A floating-point mode in which results and inputs that are denormal become 0.
#if defined(__x86_64__)
constexpr compat::FloatMode kFlushesDenormals = 0x9FC0;  // as TensorFlow sets it
constexpr uint64_t kSignsOfNan = ~uint64_t{0};           // what it makes of infinity - infinity
#else
constexpr compat::FloatMode kFlushesDenormals = 1u << 24;
constexpr uint64_t kSignsOfNan = 0;
#endif

// The same of any floating-point type that is to be looked at closely: in turn denormals, zeros,
// infinities and ordinary numbers, of both signs, and NaN. That one is the processor's own: of two
// that differ an addition may give either.
inline void FillSpecial(Buffer* buffer, DType dtype, uint64_t seed) {
  const int64_t item = ItemSize(dtype);
  const int fraction = dtype == DType::kFloat16    ? 10
                       : dtype == DType::kBFloat16 ? 7
                       : dtype == DType::kFloat32  ? 23
                                                   : 52;
  const uint64_t one = 1;
  const uint64_t sign = one << (8 * item - 1);
  const uint64_t infinity = sign - (one << fraction);
  Random random(seed);
  for (int64_t at = 0; at < buffer->bytes(); at += item) {
    const uint64_t low = random.Next() % (one << (fraction - 1));
    const uint64_t kinds[] = {low, 1, 0, infinity, low << 1, infinity / 2 + low};
    uint64_t bits = kinds[random.Below(6)];
    if (random.Below(2) == 1) bits |= sign;
    if (random.Below(16) == 0) bits = (kSignsOfNan & sign) | infinity | (one << (fraction - 1));
    std::memcpy(buffer->data() + at, &bits, static_cast<size_t>(item));
  }
}

// Element `i` as a number.
inline double ValueAt(const char* data, DType dtype, int64_t i) {
  const char* const at = data + i * ItemSize(dtype);
  const auto as = [&](auto x) {
    std::memcpy(&x, at, sizeof x);
    return x;
  };
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return as(uint8_t{});
    case DType::kInt8:
      return as(int8_t{});
    case DType::kInt32:
      return as(int32_t{});
    case DType::kInt64:
      return static_cast<double>(as(int64_t{}));
    case DType::kFloat16:
      return ToFloat(as(Float16{}));
    case DType::kBFloat16:
      return ToFloat(as(BFloat16{}));
    case DType::kFloat32:
      return as(float{});
    case DType::kFloat64:
      return as(double{});
    case DType::kInt16:
      return as(int16_t{});
    case DType::kUInt16:
      return as(uint16_t{});
    case DType::kUInt32:
      return as(uint32_t{});
    case DType::kUInt64:
      return static_cast<double>(as(uint64_t{}));
    case DType::kComplex64:
    case DType::kComplex128:
      break;  // two numbers
  }
  return 0.0;
}

// The distance from 1 to the next number.
inline double Epsilon(DType dtype) {
  return dtype == DType::kFloat16    ? 0x1p-10
         : dtype == DType::kBFloat16 ? 0x1p-7
         : dtype == DType::kFloat32  ? 0x1p-23
                                     : 0x1p-52;
}

// The reduction of each host's ranks first, in order, then of the hosts, in the order of their
// lowest ranks. `hosts[r]` is rank r's. Sums of 16-bit floats are completed within each host,
// unless they are to be wide.
inline Buffer ReduceByHost(const std::vector<const void*>& in, const std::vector<int>& hosts,
                           int64_t count, DType dtype, const Reduction& reduction, bool wide) {
  const Reduction across = Between(reduction);
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool rounded = half && across.op == ReduceOp::kSum && !wide;
  const DType between = rounded ? dtype : TypeBetween(dtype, reduction);
  Reduction within = across;
  if (rounded) {
    within.prescale = reduction.prescale;
    within.postscale = reduction.postscale;
    if (reduction.op == ReduceOp::kAverage) within.postscale /= static_cast<double>(in.size());
  }
  const auto combine = [&](const std::vector<Buffer>& values, const Reduction& how) {
    std::vector<const void*> pointers;
    for (const Buffer& value : values) pointers.push_back(value.data());
    Buffer result(count * ItemSize(between));
    ReduceRanks(result.data(), pointers.data(), static_cast<int>(values.size()), count, between,
                how);
    return result;
  };
  std::vector<int> seen;
  for (const int host : hosts) {
    if (std::find(seen.begin(), seen.end(), host) == seen.end()) seen.push_back(host);
  }
  std::vector<Buffer> sums;
  for (const int host : seen) {
    std::vector<Buffer> values;
    for (size_t r = 0; r < in.size(); ++r) {
      if (hosts[r] != host) continue;
      values.emplace_back(count * ItemSize(between));
      if (rounded) {
        std::memcpy(values.back().data(), in[r], static_cast<size_t>(values.back().bytes()));
      } else {
        Widen(values.back().data(), in[r], count, dtype, reduction);
      }
    }
    sums.push_back(combine(values, within));
  }
  Buffer all = combine(sums, across);
  if (rounded) return all;
  Buffer result(count * ItemSize(dtype));
  Complete(result.data(), all.data(), static_cast<int>(in.size()), count, dtype, reduction);
  return result;
}

// A pattern for buffers too large to be made at random: byte i is step * (i mod 251), in 8 bits, so
// that the sum of patterns is the pattern of the sum of their steps.
inline std::string Pattern(int step) {
  constexpr int kPrime = 251;
  std::string once;
  for (int i = 0; i < kPrime; ++i) once += static_cast<char>(step * i);
  std::string pattern;
  while (pattern.size() < (1 << 20)) pattern += once;
  return pattern;
}

inline void FillPattern(Buffer* buffer, int step) {
  const std::string pattern = Pattern(step);
  const int64_t period = static_cast<int64_t>(pattern.size());
  for (int64_t at = 0; at < buffer->bytes(); at += period) {
    const int64_t n = std::min(period, buffer->bytes() - at);
    std::memcpy(buffer->data() + at, pattern.data(), static_cast<size_t>(n));
  }
}

// Where the first piece that is not of the pattern begins; -1 if all is.
inline int64_t FirstOffPattern(const Buffer& buffer, int step) {
  const std::string pattern = Pattern(step);
  const int64_t period = static_cast<int64_t>(pattern.size());
  for (int64_t at = 0; at < buffer.bytes(); at += period) {
    const int64_t n = std::min(period, buffer.bytes() - at);
    if (std::memcmp(buffer.data() + at, pattern.data(), static_cast<size_t>(n)) != 0) return at;
  }
  return -1;
}

}  // namespace testing
}  // namespace tfhvd
