// float16 and bfloat16 against definitions written with library functions: every 16-bit pattern,
// and rounding at and around every midpoint.
#include "cc/numeric/half.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

// The value of a pattern with `exponent_bits` and `mantissa_bits`, from the definition.
float Value(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return static_cast<float>(mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                                            : std::numeric_limits<double>::quiet_NaN());
  }
  if (exponent == 0)
    return static_cast<float>(sign * std::ldexp(mantissa, 1 - bias - mantissa_bits));
  return static_cast<float>(
      sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits));
}

bool SameBits(float a, float b) { return BitsFromFloat(a) == BitsFromFloat(b); }

template <typename H, typename Narrow>
void CheckAll(int exponent_bits, int mantissa_bits, const Narrow& narrow) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float wide = ToFloat(H{bits});
    const float expected = Value(bits, exponent_bits, mantissa_bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(ToFloat(narrow(wide))));
      continue;
    }
    EXPECT_TRUE(SameBits(wide, expected));
    EXPECT_EQ(narrow(wide).bits, bits);
  }
}

// Between two neighbours: the midpoint goes to the even one, anything beside it to the nearer one.
template <typename H, typename Narrow>
void CheckMidpoints(uint16_t infinity, const Narrow& narrow) {
  for (uint16_t low = 0; low + 1 < infinity; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const float middle = (ToFloat(H{low}) + ToFloat(H{high})) / 2;
    const uint16_t even = low % 2 == 0 ? low : high;
    for (uint16_t sign : {0, 0x8000}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      EXPECT_EQ(narrow(s * middle).bits, even | sign);
      EXPECT_EQ(narrow(s * std::nextafter(middle, 0.0f)).bits, low | sign);
      EXPECT_EQ(narrow(s * std::nextafter(middle, 1e38f)).bits, high | sign);
    }
  }
}

const auto kToFloat16 = [](float f) { return ToFloat16(f); };
const auto kToBFloat16 = [](float f) { return ToBFloat16(f); };

TEST(EveryFloat16) { CheckAll<Float16>(5, 10, kToFloat16); }
TEST(EveryBFloat16) { CheckAll<BFloat16>(8, 7, kToBFloat16); }
TEST(Float16RoundsToNearestEven) { CheckMidpoints<Float16>(0x7c00, kToFloat16); }
TEST(BFloat16RoundsToNearestEven) {
  // Not the largest exponents: nextafter towards 1e38 goes down there.
  CheckMidpoints<BFloat16>(0x7e00, kToBFloat16);
}

TEST(WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(ToFloat16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(ToFloat16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(WhatIsTooSmallIsASignedZero) {
  EXPECT_EQ(ToFloat16(std::ldexp(1.0f, -25)).bits, 0);  // the midpoint below the least
  EXPECT_EQ(ToFloat16(-std::ldexp(1.5f, -26)).bits, 0x8000);
  EXPECT_EQ(ToFloat16(std::ldexp(1.5f, -25)).bits, 1);
  EXPECT_EQ(ToBFloat16(-0.0f).bits, 0x8000);
}

TEST(ANaNWithALowMantissaStaysANaN) {
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7f802000u}) {
    EXPECT_TRUE(std::isnan(ToFloat(ToFloat16(FloatFromBits(bits)))));
    EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(FloatFromBits(bits)))));
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
