// Which values are finite, by their bits and by the standard library.
#include "cc/numeric/finite.h"

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

template <typename Float, typename Bits>
void CheckAgainstTheLibrary(DType dtype, const std::vector<Bits>& patterns) {
  for (const Bits bits : patterns) {
    Float value;
    std::memcpy(&value, &bits, sizeof value);
    const NotFinite counts = CountNotFinite(&value, dtype, 1);
    EXPECT_EQ(AllFinite(&value, dtype, 1), static_cast<bool>(std::isfinite(value)));
    EXPECT_EQ(counts.nans, int64_t{std::isnan(value)});
    EXPECT_EQ(counts.infinities, int64_t{std::isinf(value)});
  }
}

TEST(EachPatternIsWhatTheLibrarySays) {
  std::vector<uint32_t> singles = {0,          1,          0x80000000, 0x7F7FFFFF, 0x7F800000,
                                   0xFF800000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF,
                                   0x7FC00000, 0x00800000, 0x3F800000, 0xFF7FFFFF};
  uint32_t random = 12345;
  for (int i = 0; i < 100000; ++i) singles.push_back(random = random * 1664525u + 1013904223u);
  CheckAgainstTheLibrary<float>(DType::kFloat32, singles);

  std::vector<uint64_t> doubles = {0,
                                   1,
                                   0x7FF0000000000000u,
                                   0xFFF0000000000000u,
                                   0x7FF0000000000001u,
                                   0xFFFFFFFFFFFFFFFFu,
                                   0x7FEFFFFFFFFFFFFFu,
                                   0x7FF8000000000000u};
  uint64_t wide = 99;
  for (int i = 0; i < 100000; ++i) {
    doubles.push_back(wide = wide * 6364136223846793005u + 1442695040888963407u);
  }
  CheckAgainstTheLibrary<double>(DType::kFloat64, doubles);
}

// Of sixteen bits there are few enough to try all.
TEST(EachHalfIsWhatItsExponentSays) {
  for (uint32_t bits = 0; bits < (1u << 16); ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    EXPECT_EQ(AllFinite(&value, DType::kFloat16, 1), (bits & 0x7C00) != 0x7C00);
    EXPECT_EQ(AllFinite(&value, DType::kBFloat16, 1), (bits & 0x7F80) != 0x7F80);
    const NotFinite half = CountNotFinite(&value, DType::kFloat16, 1);
    EXPECT_EQ(half.infinities, int64_t{(bits & 0x7FFF) == 0x7C00});
    EXPECT_EQ(half.nans, int64_t{(bits & 0x7FFF) > 0x7C00});
  }
}

TEST(OneValueIsFoundWhereverItIs) {
  for (size_t size : {1, 2, 7, 16, 33, 4095, 4096, 4097, 10000}) {
    std::vector<float> values(size, 1.5f);
    EXPECT_TRUE(AllFinite(values.data(), DType::kFloat32, size));
    for (size_t at : {size_t{0}, size / 2, size - 1}) {
      values[at] = -std::numeric_limits<float>::infinity();
      EXPECT_FALSE(AllFinite(values.data(), DType::kFloat32, size));
      EXPECT_EQ(CountNotFinite(values.data(), DType::kFloat32, size).infinities, int64_t{1});
      values[at] = 1.5f;
    }
  }
}

TEST(BothPartsOfAComplexNumberCount) {
  std::vector<std::complex<double>> values(5, {1.0, 2.0});
  EXPECT_TRUE(AllFinite(values.data(), DType::kComplex128, values.size()));
  values[4] = {0.0, std::nan("")};
  EXPECT_FALSE(AllFinite(values.data(), DType::kComplex128, values.size()));
  const std::complex<float> both(std::nanf(""), std::numeric_limits<float>::infinity());
  const NotFinite counts = CountNotFinite(&both, DType::kComplex64, 1);
  EXPECT_EQ(counts.nans, int64_t{1});
  EXPECT_EQ(counts.infinities, int64_t{1});
}

TEST(WholeNumbersAreFinite) {
  const int64_t ones = -1;
  EXPECT_TRUE(AllFinite(&ones, DType::kInt64, 1));
  EXPECT_TRUE(AllFinite(&ones, DType::kBool, 8));
  EXPECT_TRUE(AllFinite(nullptr, DType::kFloat32, 0));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
