// Arithmetic of the collectives: every type and operation against a plain reference, and what
// is special: NaN, infinity, wrapping, truncation, scaling.
#include "cc/numeric/arithmetic.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/numeric/compat.h"
#include "cc/numeric/half.h"
#include "tests/core/conformance_data.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The reduction of a few values, one of each rank.
template <typename T>
T ReduceValues(DType dtype, const Reduction& reduction, const std::vector<T>& values) {
  std::vector<const void*> in;
  for (const T& value : values) in.push_back(&value);
  T out{};
  ReduceRanks(&out, in.data(), static_cast<int>(in.size()), 1, dtype, reduction);
  return out;
}

float ReduceFloats(ReduceOp op, const std::vector<float>& values) {
  return ReduceValues<float>(DType::kFloat32, {op, 1.0, 1.0}, values);
}

uint16_t ReduceHalves(DType dtype, const Reduction& reduction, const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float v : values) {
    halves.push_back(dtype == DType::kFloat16 ? ToFloat16(v).bits : ToBFloat16(v).bits);
  }
  return ReduceValues<uint16_t>(dtype, reduction, halves);
}

float Widen(uint16_t bits, bool brain) {
  return brain ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}
uint16_t Narrow(float f, bool brain) { return brain ? ToBFloat16(f).bits : ToFloat16(f).bits; }

template <typename T>
void StoreAs(const T& value, char* place) {
  std::memcpy(place, &value, sizeof value);
}

// Rounding after each rank would stay at 2048 and 256: the sum is rounded once.
TEST(HalvesAreSummedInFloat32AndRoundedOnce) {
  const Reduction sum{ReduceOp::kSum, 1.0, 1.0};
  EXPECT_EQ(ReduceHalves(DType::kFloat16, sum, {2048, 1, 1}), ToFloat16(2050).bits);
  EXPECT_EQ(ReduceHalves(DType::kBFloat16, sum, {256, 1, 1}), ToBFloat16(258).bits);
  // 60000 + 60000 overflows float16, its average does not.
  EXPECT_EQ(ReduceHalves(DType::kFloat16, {ReduceOp::kAverage, 1.0, 1.0}, {60000, 60000}),
            ToFloat16(60000).bits);
  EXPECT_EQ(ReduceHalves(DType::kFloat16, sum, {60000, 60000}), 0x7c00);
  EXPECT_EQ(ReduceHalves(DType::kFloat16, {ReduceOp::kSum, 0.5, 4.0}, {3, 5}), ToFloat16(16).bits);
}

// ---- every type and operation ----

// One element by the definition, through the widest type of its kind.
template <typename T, typename Wide>
T Reference(const std::vector<T>& values, const Reduction& r) {
  using Unsigned = std::conditional_t<std::is_integral<Wide>::value, uint64_t, Wide>;
  const auto scale = [](Wide x, double factor) {
    if (factor == 1.0) return x;
    return std::is_integral<Wide>::value ? static_cast<Wide>(static_cast<double>(x) * factor)
                                         : static_cast<Wide>(x * static_cast<Wide>(factor));
  };
  Wide total = scale(static_cast<Wide>(values[0]), r.prescale);
  for (size_t i = 1; i < values.size(); ++i) {
    const Wide x = scale(static_cast<Wide>(values[i]), r.prescale);
    switch (r.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        total = static_cast<Wide>(static_cast<Unsigned>(total) + static_cast<Unsigned>(x));
        break;
      case ReduceOp::kProduct:
        total = static_cast<Wide>(static_cast<Unsigned>(total) * static_cast<Unsigned>(x));
        break;
      case ReduceOp::kMin:
        total = x < total ? x : total;
        break;
      case ReduceOp::kMax:
        total = x > total ? x : total;
        break;
    }
  }
  if (r.op == ReduceOp::kAverage) total /= static_cast<Wide>(values.size());
  return static_cast<T>(scale(total, r.postscale));
}

// Compares ReduceRanks with the reference for all operations, sizes around those of its blocks and
// every choice of the output among the inputs.
template <typename T, typename Wide>
void CheckType(DType dtype) {
  const double scales[][2] = {{1.0, 1.0}, {0.5, 1.0}, {1.0, 3.0}, {2.0, 0.25}};
  for (int o = 0; o < kNumReduceOps; ++o) {
    for (const auto& scale : scales) {
      const Reduction reduction{static_cast<ReduceOp>(o), scale[0], scale[1]};
      if (!CheckReduction(dtype, reduction).ok()) continue;
      const bool scaled = scale[0] != 1.0 || scale[1] != 1.0;
      // A scaled product of large random integers has no value that an int64 can hold.
      if (std::is_integral<T>::value && sizeof(T) >= 4 && scaled &&
          reduction.op == ReduceOp::kProduct)
        continue;
      for (const int64_t count : {0, 1, 3, 1023, 1024, 1025, 2500}) {
        for (const int ranks : {1, 2, 5}) {
          std::vector<Buffer> inputs;
          std::vector<const void*> in;
          for (int r = 0; r < ranks; ++r) {
            inputs.emplace_back(count * ItemSize(dtype));
            FillRandom(&inputs.back(), dtype, static_cast<uint64_t>(count * 10 + r), scaled);
          }
          for (const Buffer& input : inputs) in.push_back(input.data());
          std::vector<T> expected;
          for (int64_t i = 0; i < count; ++i) {
            std::vector<T> values;
            for (int r = 0; r < ranks; ++r) values.push_back(static_cast<const T*>(in[r])[i]);
            expected.push_back(Reference<T, Wide>(values, reduction));
          }
          const size_t bytes = expected.size() * sizeof(T);
          Buffer out(count * ItemSize(dtype));
          ReduceRanks(out.data(), in.data(), ranks, count, dtype, reduction);
          const int place = static_cast<int>(count) % ranks;
          ReduceRanks(inputs[place].data(), in.data(), ranks, count, dtype, reduction);
          const bool equal = bytes == 0 || std::memcmp(out.data(), expected.data(), bytes) == 0;
          const bool in_place =
              bytes == 0 || std::memcmp(inputs[place].data(), expected.data(), bytes) == 0;
          const std::string what = std::string(DTypeName(dtype)) + " " +
                                   ReduceOpName(reduction.op) + " " + std::to_string(count) +
                                   " elements of " + std::to_string(ranks) + " ranks, scaled by " +
                                   std::to_string(scale[0]) + ", " + std::to_string(scale[1]);
          EXPECT_EQ(equal ? "" : what, "");
          EXPECT_EQ(in_place ? "" : what + " in place", "");
          EXPECT_TRUE(out.intact() && inputs[place].intact());
        }
      }
    }
  }
}

TEST(UInt8MatchesTheReference) { CheckType<uint8_t, int64_t>(DType::kUInt8); }
TEST(Int8MatchesTheReference) { CheckType<int8_t, int64_t>(DType::kInt8); }
TEST(Int16MatchesTheReference) { CheckType<int16_t, int64_t>(DType::kInt16); }
TEST(UInt16MatchesTheReference) { CheckType<uint16_t, int64_t>(DType::kUInt16); }
TEST(UInt32MatchesTheReference) { CheckType<uint32_t, int64_t>(DType::kUInt32); }
TEST(UInt64MatchesTheReference) { CheckType<uint64_t, uint64_t>(DType::kUInt64); }
TEST(Int32MatchesTheReference) { CheckType<int32_t, int64_t>(DType::kInt32); }
TEST(Int64MatchesTheReference) { CheckType<int64_t, int64_t>(DType::kInt64); }
TEST(Float32MatchesTheReference) { CheckType<float, float>(DType::kFloat32); }
TEST(Float64MatchesTheReference) { CheckType<double, double>(DType::kFloat64); }
TEST(BoolMatchesTheReference) { CheckType<uint8_t, int64_t>(DType::kBool); }

// The halves: the reference in float32, rounded once.
TEST(HalvesMatchTheReference) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const bool brain = dtype == DType::kBFloat16;
    for (int o = 0; o < kNumReduceOps; ++o) {
      const Reduction reduction{static_cast<ReduceOp>(o), 0.5, 3.0};
      Buffer a(2 * 65536), b(2 * 65536), out(2 * 65536);
      FillRandom(&a, dtype, 1, true);
      FillRandom(&b, dtype, 2, true);
      const void* in[] = {a.data(), b.data()};
      ReduceRanks(out.data(), in, 2, 65536, dtype, reduction);
      for (int64_t i = 0; i < 65536; ++i) {
        uint16_t x, y, got;
        std::memcpy(&x, a.data() + 2 * i, 2);
        std::memcpy(&y, b.data() + 2 * i, 2);
        std::memcpy(&got, out.data() + 2 * i, 2);
        const float expected =
            Reference<float, float>({Widen(x, brain), Widen(y, brain)}, reduction);
        EXPECT_EQ(got, Narrow(expected, brain));
      }
    }
  }
}

// ---- what is special ----

TEST(IntegersWrapAndAveragesDoNot) {
  const Reduction sum{ReduceOp::kSum, 1.0, 1.0};
  const Reduction average{ReduceOp::kAverage, 1.0, 1.0};
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(ReduceValues<int8_t>(DType::kInt8, sum, {127, 1}), -128);
  EXPECT_EQ(ReduceValues<int32_t>(DType::kInt32, sum, {kMost, 1}),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(ReduceValues<int8_t>(DType::kInt8, average, {127, 127, 127}), 127);
  EXPECT_EQ(ReduceValues<uint8_t>(DType::kUInt8, average, {255, 255}), 255);
  EXPECT_EQ(ReduceValues<int32_t>(DType::kInt32, average, {kMost, kMost}), kMost);
  constexpr int64_t kLong = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ReduceValues<int64_t>(DType::kInt64, sum, {kLong, 1}),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ReduceValues<uint16_t>(DType::kUInt16, sum, {65535, 2}), 1);
  EXPECT_EQ(ReduceValues<int16_t>(DType::kInt16, average, {32767, 32767, 32767}), 32767);
  constexpr uint32_t kMostUnsigned = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(ReduceValues<uint32_t>(DType::kUInt32, average, {kMostUnsigned, kMostUnsigned}),
            kMostUnsigned);
  constexpr uint64_t kLongest = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, sum, {kLongest, 3}), uint64_t{2});
}

// TensorFlow's threads flush denormals to zero, and the engine's thread does not.
TEST(DenormalsAreKeptWhateverTheCallerHasSet) {
  const Reduction sum{ReduceOp::kSum, 1.0, 1.0};
  const Reduction halves{ReduceOp::kSum, 0.5, 1.0};
  const Reduction average{ReduceOp::kAverage, 1.0, 1.0};
  constexpr float kSmall = std::numeric_limits<float>::denorm_min();
  constexpr double kSmaller = std::numeric_limits<double>::denorm_min();
  const compat::FloatMode before = compat::ReadFloatMode();
  compat::WriteFloatMode(kFlushesDenormals);
  const float two = ReduceValues<float>(DType::kFloat32, sum, {kSmall, kSmall});
  const float mean = ReduceValues<float>(DType::kFloat32, average, {2 * kSmall, 2 * kSmall});
  const float scaled = ReduceValues<float>(DType::kFloat32, halves, {4 * kSmall, 2 * kSmall});
  const double three = ReduceValues<double>(DType::kFloat64, sum, {kSmaller, kSmaller, kSmaller});
  const uint16_t half = ReduceValues<uint16_t>(DType::kFloat16, sum, {3, 4});  // bits
  const compat::FloatMode after = compat::ReadFloatMode();
  compat::WriteFloatMode(before);
  EXPECT_EQ(two, 2 * kSmall);
  EXPECT_EQ(mean, 2 * kSmall);
  EXPECT_EQ(scaled, 3 * kSmall);
  EXPECT_EQ(three, 3 * kSmaller);
  EXPECT_EQ(half, uint16_t{7});
  EXPECT_EQ(after & kFlushesDenormals, kFlushesDenormals);  // the caller's own mode is back
}

TEST(IntegersAreScaledByFiniteFactorsOnly) {
  for (const double factor : {double{kInfinity}, -double{kInfinity}, double{kNaN}}) {
    for (const DType dtype : {DType::kInt8, DType::kUInt64, DType::kBool}) {
      for (const Reduction& wrong :
           {Reduction{ReduceOp::kSum, factor, 1.0}, Reduction{ReduceOp::kAverage, 1.0, factor}}) {
        EXPECT_TRUE(!CheckReduction(dtype, wrong).ok());
      }
    }
    EXPECT_OK(CheckReduction(DType::kFloat32, {ReduceOp::kSum, factor, 1.0}));
    EXPECT_OK(CheckReduction(DType::kComplex64, {ReduceOp::kSum, factor, 1.0}));
  }
}

TEST(UnsignedNumbersOf64BitsAreNotTakenForNegativeOnes) {
  constexpr uint64_t kLongest = std::numeric_limits<uint64_t>::max();
  constexpr uint64_t kTop = uint64_t{1} << 63;
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, {ReduceOp::kMax, 1.0, 1.0}, {kTop, 1}), kTop);
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, {ReduceOp::kMin, 1.0, 1.0}, {kTop, 1}),
            uint64_t{1});
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, {ReduceOp::kAverage, 1.0, 1.0}, {kTop, 2}),
            (kTop + 2) / 2);
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, {ReduceOp::kSum, 1.0, 0.5}, {kTop, 0}),
            kTop / 2);
  // Beyond either end: the largest number, and what is negative wraps as in the narrower types.
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, {ReduceOp::kSum, 1.0, 4.0}, {kTop, 0}),
            kLongest);
  EXPECT_EQ(ReduceValues<uint64_t>(DType::kUInt64, {ReduceOp::kSum, 1.0, -1.5}, {3, 0}),
            uint64_t{0} - 4);
  EXPECT_EQ(ReduceValues<uint32_t>(DType::kUInt32, {ReduceOp::kSum, 1.0, -1.5}, {3, 0}),
            uint32_t{0} - 4);
}

TEST(IntegerAveragesAndFactorsTruncate) {
  const Reduction average{ReduceOp::kAverage, 1.0, 1.0};
  EXPECT_EQ(ReduceValues<int32_t>(DType::kInt32, average, {3, 4}), 3);
  EXPECT_EQ(ReduceValues<int32_t>(DType::kInt32, average, {-3, -4}), -3);
  EXPECT_EQ(ReduceValues<int32_t>(DType::kInt32, {ReduceOp::kSum, 0.5, 1.0}, {3, 5}), 1 + 2);
  EXPECT_EQ(ReduceValues<int32_t>(DType::kInt32, {ReduceOp::kSum, 1.0, 0.5}, {3, 4}), 3);
  EXPECT_EQ(ReduceValues<int64_t>(DType::kInt64, {ReduceOp::kMax, 1.0, -1.5}, {3, 1}), -4);
}

TEST(NaNOfAnyRankIsTheResult) {
  for (int o = 0; o < kNumReduceOps; ++o) {
    for (size_t who = 0; who < 3; ++who) {
      std::vector<float> values = {1.0f, -kInfinity, 2.0f};
      values[who] = kNaN;
      EXPECT_TRUE(std::isnan(ReduceFloats(static_cast<ReduceOp>(o), values)));
      const uint16_t half =
          ReduceHalves(DType::kFloat16, {static_cast<ReduceOp>(o), 1.0, 1.0}, values);
      EXPECT_TRUE(std::isnan(ToFloat(Float16{half})));
    }
  }
}

TEST(InfinitiesFollowTheRules) {
  EXPECT_EQ(ReduceFloats(ReduceOp::kSum, {1.0f, kInfinity}), kInfinity);
  EXPECT_TRUE(std::isnan(ReduceFloats(ReduceOp::kSum, {kInfinity, -kInfinity})));
  EXPECT_EQ(ReduceFloats(ReduceOp::kMin, {kInfinity, -kInfinity, 0.0f}), -kInfinity);
  EXPECT_EQ(ReduceFloats(ReduceOp::kMax, {-kInfinity, 3.0f}), 3.0f);
  EXPECT_EQ(ReduceFloats(ReduceOp::kAverage, {kInfinity, 1.0f}), kInfinity);
  EXPECT_EQ(ReduceFloats(ReduceOp::kProduct, {-2.0f, kInfinity}), -kInfinity);
}

// (big + small) - big depends on the order: rank 0 first.
TEST(RanksAreCombinedInOrder) {
  EXPECT_EQ(ReduceFloats(ReduceOp::kSum, {1e8f, 1.0f, -1e8f}), 0.0f);
  EXPECT_EQ(ReduceFloats(ReduceOp::kSum, {1e8f, -1e8f, 1.0f}), 1.0f);
}

// Any values of integers, and floats whose sums are exact, give the same bits by hosts as rank by
// rank: nothing is rounded, wrapped, divided or scaled between the levels.
TEST(LevelsLoseNothing) {
  constexpr int64_t kCount = 2500;
  const std::vector<int> hosts = {0, 0, 1, 2, 0, 1};
  for (int t = 0; t < kNumRealDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
    std::vector<Buffer> values;
    std::vector<const void*> in;
    for (size_t r = 0; r < hosts.size(); ++r) {
      values.emplace_back(kCount * ItemSize(dtype));
      FillRandom(&values.back(), dtype, r, true);
      for (int64_t i = 0; i < kCount; ++i) {
        const int small = static_cast<int>((static_cast<size_t>(i) * 7 + r * 13) % 31) - 15;
        char* const place = values.back().data() + i * ItemSize(dtype);
        if (dtype == DType::kFloat16) StoreAs(ToFloat16(static_cast<float>(small)), place);
        if (dtype == DType::kBFloat16) StoreAs(ToBFloat16(static_cast<float>(small)), place);
        if (dtype == DType::kFloat32) StoreAs(static_cast<float>(small), place);
        if (dtype == DType::kFloat64) StoreAs(static_cast<double>(small), place);
      }
    }
    for (const Buffer& value : values) in.push_back(value.data());
    for (int o = 0; o < kNumReduceOps; ++o) {
      for (const auto& [prescale, postscale] :
           {std::pair(1.0, 1.0), std::pair(0.5, 1.0), std::pair(1.0, 2.5), std::pair(2.0, 0.25)}) {
        const Reduction reduction{static_cast<ReduceOp>(o), prescale, postscale};
        if (!CheckReduction(dtype, reduction).ok()) continue;
        Buffer flat(kCount * ItemSize(dtype));
        ReduceRanks(flat.data(), in.data(), static_cast<int>(in.size()), kCount, dtype, reduction);
        const Buffer levels = ReduceByHost(in, hosts, kCount, dtype, reduction, true);
        EXPECT_EQ(std::memcmp(flat.data(), levels.data(), static_cast<size_t>(flat.bytes())), 0);
        EXPECT_TRUE(levels.intact());
      }
    }
    // What is only selected or wraps needs no more room between the levels.
    EXPECT_EQ(TypeBetween(dtype, {ReduceOp::kMax, 1.0, 1.0}), dtype);
    EXPECT_EQ(TypeBetween(dtype, {ReduceOp::kSum, 1.0, 1.0}), half ? DType::kFloat32 : dtype);
  }
}

TEST(NeutralValuesChangeNothing) {
  constexpr int64_t kCount = 100;
  for (int t = 0; t < kNumRealDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    for (int o = 0; o < kNumReduceOps; ++o) {
      const Reduction reduction{static_cast<ReduceOp>(o), 1.0, 1.0};
      if (reduction.op == ReduceOp::kAverage || !CheckReduction(dtype, reduction).ok()) continue;
      Buffer values(kCount * ItemSize(dtype)), neutral(values.bytes()), out(values.bytes());
      FillRandom(&values, dtype, 1, false);
      FillNeutral(neutral.data(), kCount, dtype, reduction.op);
      const void* in[] = {neutral.data(), values.data(), neutral.data()};
      ReduceRanks(out.data(), in, 3, kCount, dtype, reduction);
      EXPECT_EQ(std::memcmp(out.data(), values.data(), static_cast<size_t>(out.bytes())), 0);
      EXPECT_TRUE(neutral.intact());
    }
  }
}

TEST(ComplexNumbersAreAddedOnly) {
  for (const DType dtype : {DType::kComplex64, DType::kComplex128}) {
    EXPECT_EQ(ItemSize(dtype), 2 * ItemSize(PartType(dtype)));
    EXPECT_TRUE(IsFloat(PartType(dtype)) && !IsFloat(dtype));
    EXPECT_OK(CheckReduction(dtype, {ReduceOp::kSum, 2.0, 0.5}));
    EXPECT_OK(CheckReduction(dtype, {ReduceOp::kAverage, 1.0, 1.0}));
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      EXPECT_ERROR(CheckReduction(dtype, {op, 1.0, 1.0}), StatusCode::kInvalidArgument,
                   std::string("op=") + ReduceOpName(op));
    }
  }
  for (int t = 0; t < kNumRealDTypes; ++t) {
    EXPECT_EQ(PartType(static_cast<DType>(t)), static_cast<DType>(t));
    EXPECT_FALSE(IsComplex(static_cast<DType>(t)));
  }
}

TEST(BoolIsAndAndOrOnly) {
  const Reduction least{ReduceOp::kMin, 1.0, 1.0};
  const Reduction most{ReduceOp::kMax, 1.0, 1.0};
  EXPECT_EQ(ReduceValues<uint8_t>(DType::kBool, least, {1, 1, 0}), 0);
  EXPECT_EQ(ReduceValues<uint8_t>(DType::kBool, least, {1, 1, 1}), 1);
  EXPECT_EQ(ReduceValues<uint8_t>(DType::kBool, most, {0, 1, 0}), 1);
  EXPECT_EQ(ReduceValues<uint8_t>(DType::kBool, most, {0, 0, 0}), 0);
  EXPECT_OK(CheckReduction(DType::kBool, least));
  EXPECT_OK(CheckReduction(DType::kBool, most));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
    EXPECT_ERROR(CheckReduction(DType::kBool, {op, 1.0, 1.0}), StatusCode::kInvalidArgument,
                 std::string("op=") + ReduceOpName(op));
  }
  EXPECT_ERROR(CheckReduction(DType::kBool, {ReduceOp::kMax, 2.0, 1.0}),
               StatusCode::kInvalidArgument, "prescale_factor=2");
  EXPECT_OK(CheckReduction(DType::kInt8, {ReduceOp::kAverage, 2.0, 0.5}));
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
