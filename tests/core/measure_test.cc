// How large values are: beside a sum in long double, for every type and set of instructions.
#include "cc/numeric/measure.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "cc/numeric/half.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

void ExpectNear(double got, long double expected) {
  EXPECT_TRUE(std::abs(got - static_cast<double>(expected)) <=
              1e-5 * static_cast<double>(expected));
}

// As long as blocks are, and not; within what squares of float32 hold, and beyond.
TEST(SumsAreThoseOfTheDefinition) {
  uint32_t random = 7;
  for (const size_t count : {1, 31, 32, 33, 1000, 4095, 4096, 4097, 20000}) {
    for (const float scale : {1e-38f, 1e-25f, 1e-3f, 1.0f, 1e20f, 1e37f}) {
      std::vector<float> values(count);
      long double squares = 0;
      double largest = 0;
      for (float& value : values) {
        random = random * 1664525u + 1013904223u;
        value = scale * (static_cast<float>(random >> 8) / (1 << 23) - 1.0f);
        squares += static_cast<long double>(value) * static_cast<long double>(value);
        largest = std::max(largest, std::abs(static_cast<double>(value)));
      }
      for (const Measured& got : MeasureByAll(values.data(), count)) {
        EXPECT_TRUE(got.finite);
        EXPECT_EQ(got.largest, largest);
        ExpectNear(got.squares, squares);
      }
    }
  }
}

TEST(OneValueThatIsNotFiniteIsFoundWhereverItIs) {
  for (const size_t count : {1, 33, 4096, 10000}) {
    std::vector<float> values(count, -1.5f);
    for (const size_t at : {size_t{0}, count / 2, count - 1}) {
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        values[at] = -bad;
        for (const Measured& got : MeasureByAll(values.data(), count)) EXPECT_FALSE(got.finite);
        values[at] = -1.5f;
      }
    }
  }
}

TEST(EveryTypeIsMeasured) {
  const std::vector<double> doubles = {3.0, -4.0};
  const std::vector<Float16> halves = {ToFloat16(3.0f), ToFloat16(-4.0f)};
  const std::vector<BFloat16> brains = {ToBFloat16(3.0f), ToBFloat16(-4.0f)};
  const std::complex<float> single(3.0f, -4.0f);
  const std::complex<double> wide(3.0, -4.0);
  for (const Measured& got :
       {Measure(doubles.data(), DType::kFloat64, 2), Measure(halves.data(), DType::kFloat16, 2),
        Measure(brains.data(), DType::kBFloat16, 2), Measure(&single, DType::kComplex64, 1),
        Measure(&wide, DType::kComplex128, 1)}) {
    EXPECT_TRUE(got.finite);
    EXPECT_EQ(got.largest, 4.0);
    EXPECT_EQ(got.squares, 25.0);
  }
  const double bad[] = {1.0, std::nan("")};
  EXPECT_FALSE(Measure(bad, DType::kFloat64, 2).finite);
  EXPECT_EQ(Measure(nullptr, DType::kFloat32, 0).largest, 0.0);
  const int64_t number = 5;
  EXPECT_EQ(Measure(&number, DType::kInt64, 1).largest, 0.0);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
