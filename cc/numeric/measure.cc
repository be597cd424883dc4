#include "cc/numeric/measure.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cc/numeric/compat.h"
#include "cc/numeric/half.h"

namespace tfhvd {
namespace {

// Measures values one by one, by their parts, as doubles.
template <typename Value, typename ToDouble>
Measured MeasureEach(const Value* values, size_t count, ToDouble to_double) {
  Measured sum;
  for (size_t i = 0; i < count; ++i) {
    const double value = to_double(values[i]);
    sum.largest = std::max(sum.largest, std::abs(value));
    sum.squares += value * value;
    if (!std::isfinite(value)) sum.finite = false;
  }
  return sum;
}

double FromSingle(float value) { return static_cast<double>(value); }

// The result for a block: the bits of the largest absolute value, and the sum of squares if float32
// can hold it.
struct Block {
  int32_t most;
  float squares;
};

// One class for each set of instructions, so that no function is compiled for two.
template <typename Isa>
struct Singles {
  static constexpr size_t kLanes = 32;
  static constexpr size_t kBlock = 4096;  // values
  static constexpr int32_t kUnsigned = 0x7FFFFFFF;
  static constexpr int32_t kInfinity = 0x7F800000;
  // Squares of smaller and of larger values exceed the range of float32, alone or summed.
  static constexpr int32_t kSmall = (127 - 40) << 23;
  static constexpr int32_t kLarge = (127 + 50) << 23;

  // REQUIRES: `count` is a multiple of kLanes.
  static inline Block LookAt(const float* values, size_t count) {
    int32_t most[kLanes] = {0};
    float squares[kLanes] = {0.0f};
    for (size_t i = 0; i < count; i += kLanes) {
      int32_t bits[kLanes];
      std::memcpy(bits, values + i, sizeof bits);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        most[lane] = std::max(most[lane], bits[lane] & kUnsigned);
        squares[lane] += values[i + lane] * values[i + lane];
      }
    }
    Block block = {most[0], squares[0]};
    for (size_t lane = 1; lane < kLanes; ++lane) {
      block.most = std::max(block.most, most[lane]);
      block.squares += squares[lane];
    }
    return block;
  }

  static inline Block LookAtBlock(const float* values, size_t count) {
    const size_t whole = count / kLanes * kLanes;
    const Block block = LookAt(values, whole);
    if (whole == count) return block;
    float rest[kLanes] = {0.0f};
    std::memcpy(rest, values + whole, (count - whole) * sizeof(float));
    const Block last = LookAt(rest, kLanes);
    return {std::max(block.most, last.most), block.squares + last.squares};
  }

  static inline Measured Measure(const float* values, size_t count) {
    Measured sum;
    for (size_t begin = 0; begin < count; begin += kBlock) {
      const size_t size = std::min(kBlock, count - begin);
      const Block block = LookAtBlock(values + begin, size);
      if (block.most >= kInfinity) {
        sum.finite = false;
        return sum;
      }
      if (block.most > kSmall && block.most < kLarge) {
        sum.largest = std::max(sum.largest, FromSingle(FloatFromBits(block.most)));
        sum.squares += FromSingle(block.squares);
      } else if (block.most > 0) {
        const Measured part = MeasureEach(values + begin, size, FromSingle);
        sum.largest = std::max(sum.largest, part.largest);
        sum.squares += part.squares;
      }
    }
    return sum;
  }
};

struct Avx2Isa {};
struct Avx512Isa {};

TFHVD_AVX2 Measured MeasureAvx2(const float* values, size_t count) {
  return Singles<Avx2Isa>::Measure(values, count);
}
TFHVD_AVX512 Measured MeasureAvx512(const float* values, size_t count) {
  return Singles<Avx512Isa>::Measure(values, count);
}

using MeasureSingles = Measured (*)(const float* values, size_t count);

// Returns the functions for this processor, the best one last.
const std::vector<MeasureSingles>& Available() {
  static const std::vector<MeasureSingles> all = [] {
    std::vector<MeasureSingles> found = {Singles<compat::Plain>::Measure};
    if (compat::HasAvx2()) found.push_back(MeasureAvx2);
    if (compat::HasAvx512()) found.push_back(MeasureAvx512);
    return found;
  }();
  return all;
}

}  // namespace

Measured Measure(const void* data, DType dtype, size_t count) {
  const bool complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  const size_t parts = complex ? 2 * count : count;
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return Available().back()(static_cast<const float*>(data), parts);
    case DType::kFloat64:
    case DType::kComplex128:
      return MeasureEach(static_cast<const double*>(data), parts, [](double x) { return x; });
    case DType::kFloat16:
      return MeasureEach(static_cast<const Float16*>(data), parts,
                         [](Float16 x) { return FromSingle(ToFloat(x)); });
    case DType::kBFloat16:
      return MeasureEach(static_cast<const BFloat16*>(data), parts,
                         [](BFloat16 x) { return FromSingle(ToFloat(x)); });
    default:
      return {};
  }
}

std::vector<Measured> MeasureByAll(const float* data, size_t count) {
  std::vector<Measured> all;
  for (const MeasureSingles measure : Available()) all.push_back(measure(data, count));
  return all;
}

}  // namespace tfhvd
