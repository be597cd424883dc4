// float16 and bfloat16 as storage formats: conversions to and from float32, round to nearest even.
// Arithmetic on them is always done in float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace tfhvd {

struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

inline float FloatFromBits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
inline uint32_t BitsFromFloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}

inline float ToFloat(BFloat16 h) { return FloatFromBits(static_cast<uint32_t>(h.bits) << 16); }

inline BFloat16 ToBFloat16(float f) {
  const uint32_t bits = BitsFromFloat(f);
  // A NaN stays a (quiet) NaN: rounding could carry its mantissa away into infinity.
  const uint16_t nan = static_cast<uint16_t>((bits >> 16) | 0x0040u);
  const uint16_t rounded = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return {(bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded};
}

// Without branches on the value, so that compilers can vectorise loops over it.
inline float ToFloat(Float16 h) {
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(h.bits & 0x7fffu) << 13;
  // Scaling by 2^112 rebiases the exponent (15 to 127) and normalises subnormals.
  const float scaled = FloatFromBits(magnitude) * FloatFromBits(0x77800000u);
  // Infinity, and NaN (made quiet, as processors do).
  const uint32_t quiet = magnitude > 0x0f800000u ? 0x00400000u : 0u;
  const uint32_t special = magnitude | 0x7f800000u | quiet;
  const uint32_t bits = magnitude >= 0x0f800000u ? special : BitsFromFloat(scaled);
  return FloatFromBits(sign | bits);
}

inline Float16 ToFloat16(float f) {
  const uint32_t bits = BitsFromFloat(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) {  // infinity, NaN (kept quiet)
    const uint32_t nan = magnitude > 0x7f800000u ? 0x0200u | ((magnitude >> 13) & 0x3ffu) : 0u;
    return {static_cast<uint16_t>(sign | 0x7c00u | nan)};
  }
  if (magnitude >= 0x477ff000u)
    return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {  // subnormal or zero: let the float adder round at 2^-24
    const float shifted = FloatFromBits(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (BitsFromFloat(shifted) - BitsFromFloat(0.5f)))};
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0x0fffu + odd) >> 13))};
}

}  // namespace tfhvd
