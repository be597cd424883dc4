#include "cc/numeric/finite.h"

#include <algorithm>
#include <limits>

namespace tfhvd {
namespace {

// A value is not finite if all bits of its exponent are set, and NaN if a bit of the fraction is
// set, too: without its sign it is at least `kExponent`. Integers are compared, because compilers
// vectorise that, and no flag of the processor changes the meaning of a NaN.
template <typename Bits, Bits kExponent>
class Floats {
 public:
  Floats(const void* data, size_t count) : data_(static_cast<const Bits*>(data)), count_(count) {}

  bool all_finite() const {
    for (size_t begin = 0; begin < count_; begin += kBlock) {
      const size_t end = std::min(begin + kBlock, count_);
      Bits most = 0;
      for (size_t i = begin; i < end; ++i) most = std::max(most, Bits(data_[i] & kUnsigned));
      if (most >= kExponent) return false;
    }
    return true;
  }

  NotFinite Count() const {
    NotFinite found;
    for (size_t i = 0; i < count_; ++i) {
      const Bits value = data_[i] & kUnsigned;
      if (value > kExponent) ++found.nans;
      if (value == kExponent) ++found.infinities;
    }
    return found;
  }

 private:
  static constexpr size_t kBlock = 4096;  // values between two checks whether to continue
  static constexpr Bits kUnsigned = std::numeric_limits<Bits>::max();

  const Bits* const data_;
  const size_t count_;
};

// Signed, because processors without newer instructions have the maximum of signed numbers only.
using Half = Floats<int16_t, 0x7C00>;
using Brain = Floats<int16_t, 0x7F80>;
using Single = Floats<int32_t, 0x7F800000>;
using Double = Floats<int64_t, 0x7FF0000000000000>;

// Passes the values to `of` as numbers of their type; returns `other` for types that have only
// finite values.
template <typename Result, typename Of>
Result Visit(const void* data, DType dtype, size_t count, Result other, Of of) {
  switch (dtype) {
    case DType::kFloat16:
      return of(Half(data, count));
    case DType::kBFloat16:
      return of(Brain(data, count));
    case DType::kFloat32:
      return of(Single(data, count));
    case DType::kFloat64:
      return of(Double(data, count));
    case DType::kComplex64:
      return of(Single(data, 2 * count));
    case DType::kComplex128:
      return of(Double(data, 2 * count));
    default:
      return other;
  }
}

}  // namespace

bool AllFinite(const void* data, DType dtype, size_t count) {
  return Visit(data, dtype, count, true, [](const auto& values) { return values.all_finite(); });
}

NotFinite CountNotFinite(const void* data, DType dtype, size_t count) {
  return Visit(data, dtype, count, NotFinite{}, [](const auto& values) { return values.Count(); });
}

}  // namespace tfhvd
