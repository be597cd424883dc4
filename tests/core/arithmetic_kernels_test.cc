// Every set of instructions that this processor has gives the same bits as plain C++: all types and
// operations, lengths around those of vectors and blocks, addresses that are not aligned, results
// over any of the inputs, and values that are special.
#include "cc/numeric/arithmetic_kernels.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cc/numeric/arithmetic.h"
#include "cc/numeric/cpu.h"
#include "cc/numeric/half.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

constexpr int64_t kMost = 2100;
constexpr int64_t kSlack = 64;
constexpr uint32_t kQuiet = 0x7fc00001;  // a NaN

// Bits at random, and NaN that say whose they are, some on several ranks.
std::vector<char> Values(DType dtype, uint32_t rank) {
  std::mt19937 random(rank + 1);
  std::vector<char> bytes(static_cast<size_t>((kMost + kSlack) * 8));
  for (char& byte : bytes) byte = static_cast<char>(random());
  if (dtype == DType::kBool) {
    for (char& byte : bytes) byte = static_cast<char>(byte & 1);
  }
  if (ItemSize(dtype) >= 4 && !IsFloat(dtype)) {
    // Scaled by a factor they still have a value of their type.
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(ItemSize(dtype))) {
      int64_t value = static_cast<int64_t>(random() % 20001) - 10000;
      std::memcpy(&bytes[i], &value, static_cast<size_t>(ItemSize(dtype)));
    }
  }
  const auto put = [&](size_t at, const auto& value) {
    std::memcpy(&bytes[at * sizeof value], &value, sizeof value);
  };
  const auto get = [&](size_t at, auto value) {
    std::memcpy(&value, &bytes[at * sizeof value], sizeof value);
    return value;
  };
  for (size_t i = 0; i < static_cast<size_t>(kMost + kSlack); ++i) {
    const bool nan = (i + rank) % 7 < 2;
    if (dtype == DType::kFloat16 && std::isnan(ToFloat(get(i, Float16())))) put(i, Float16());
    if (dtype == DType::kBFloat16 && std::isnan(ToFloat(get(i, BFloat16())))) put(i, BFloat16());
    if (dtype == DType::kFloat32 && std::isnan(get(i, 0.0f))) put(i, 0.0f);
    if (dtype == DType::kFloat64 && std::isnan(get(i, 0.0))) put(i, 0.0);
    // Quiet ones: what makes a signalling one quiet differs.
    if (dtype == DType::kFloat16 && nan) put(i, static_cast<uint16_t>(0x7e01 + rank));
    if (dtype == DType::kBFloat16 && nan) put(i, static_cast<uint16_t>(0x7fc1 + rank));
    if (dtype == DType::kFloat32 && nan) put(i, kQuiet + rank);
    if (dtype == DType::kFloat64 && nan) put(i, uint64_t{0x7ff8000000000001} + rank);
  }
  return bytes;
}

struct Inputs {
  explicit Inputs(DType dtype, int ranks, int64_t offset) {
    for (int r = 0; r < ranks; ++r) {
      values.push_back(Values(dtype, static_cast<uint32_t>(r)));
      at.push_back(values.back().data() + offset * ItemSize(dtype));
    }
  }
  std::vector<std::vector<char>> values;
  std::vector<const void*> at;
};

std::string What(const char* name, DType dtype, const Reduction& reduction, int ranks,
                 int64_t count) {
  return std::string(name) + ": " + DTypeName(dtype) + " " + ReduceOpName(reduction.op) + " of " +
         std::to_string(ranks) + " ranks, " + std::to_string(count) + " elements, scaled by " +
         std::to_string(reduction.prescale) + ", " + std::to_string(reduction.postscale);
}

// Where results are written that lie over no rank's values.
constexpr int kElsewhere = -1;
constexpr int kPastCaches = -2;

// The result of one kernel; `place`: over whose values it is written, or one of the above.
std::vector<char> Reduced(const ArithmeticKernel& kernel, DType dtype, const Reduction& reduction,
                          int ranks, int64_t count, int64_t offset, int place) {
  Inputs inputs(dtype, ranks, offset);
  std::vector<char> out(static_cast<size_t>((count + 1) * ItemSize(dtype)), 'x');
  void* to = place < 0 ? out.data() : const_cast<void*>(inputs.at[static_cast<size_t>(place)]);
  kernel.reduce(to, inputs.at.data(), ranks, count, dtype, reduction,
                place == kPastCaches ? StoreIn::kMemory : StoreIn::kCaches);
  if (place >= 0) std::memcpy(out.data(), to, static_cast<size_t>(count * ItemSize(dtype)));
  return out;
}

TEST(EveryKernelReducesToTheSameBits) {
  const std::vector<ArithmeticKernel>& kernels = AvailableKernels();
  EXPECT_EQ(std::string(kernels[0].name), std::string("plain"));
  for (const ArithmeticKernel& kernel : kernels) std::printf("kernel: %s\n", kernel.name);
  for (int t = 0; t < kNumRealDTypes; t += kThreadSanitizer ? 3 : 1) {
    const DType dtype = static_cast<DType>(t);
    for (int o = 0; o < kNumReduceOps; ++o) {
      for (const double scale : {1.0, 0.75}) {
        const Reduction reduction{static_cast<ReduceOp>(o), scale, scale == 1.0 ? 1.0 : 3.0};
        if (!CheckReduction(dtype, reduction).ok()) continue;
        // Large integers have no product that a double, and then an int64, can hold.
        if (scale != 1.0 && reduction.op == ReduceOp::kProduct) continue;
        for (const int ranks : {1, 2, 3}) {
          for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{1025}, kMost}) {
            const int64_t offset = count % 5;
            const std::vector<char> plain =
                Reduced(kernels[0], dtype, reduction, ranks, count, offset, kElsewhere);
            for (const ArithmeticKernel& kernel : kernels) {
              for (int place = kPastCaches; place < ranks; ++place) {
                const std::vector<char> out =
                    Reduced(kernel, dtype, reduction, ranks, count, offset, place);
                EXPECT_EQ(out == plain ? "" : What(kernel.name, dtype, reduction, ranks, count),
                          "");
              }
            }
          }
        }
      }
    }
  }
}

// Wherever an element is in its array, for ranks that each reduce for themselves cut theirs
// otherwise.
TEST(OfTwoNaNTheFirstIsTheSumAndTheProduct) {
  constexpr int64_t kCount = 77;
  std::vector<std::vector<uint32_t>> values;
  std::vector<const void*> in;
  for (uint32_t rank = 0; rank < 3; ++rank) values.emplace_back(kCount, kQuiet + rank);
  for (const std::vector<uint32_t>& of_rank : values) in.push_back(of_rank.data());
  for (const ArithmeticKernel& kernel : AvailableKernels()) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
      std::vector<uint32_t> out(kCount, 0);
      kernel.reduce(out.data(), in.data(), 3, kCount, DType::kFloat32, {op, 1.0, 1.0},
                    StoreIn::kCaches);
      EXPECT_TRUE(out == values[0]);
    }
  }
}

// Between the levels of a reduction: every pattern of the 16-bit types, there and back.
TEST(EveryKernelWidensAndCompletesToTheSameBits) {
  const std::vector<ArithmeticKernel>& kernels = AvailableKernels();
  constexpr int64_t kAll = 65536;
  std::vector<uint16_t> halves(kAll);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const Reduction sum{ReduceOp::kSum, 1.0, 1.0};
  const Reduction average{ReduceOp::kAverage, 0.5, 3.0};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const Reduction& reduction : {sum, average}) {
      std::vector<float> plain(kAll), wide(kAll);
      std::vector<uint16_t> plain_back(kAll), back(kAll);
      for (const ArithmeticKernel& kernel : kernels) {
        kernel.widen(wide.data(), halves.data(), kAll, dtype, true, reduction.prescale);
        kernel.complete(back.data(), wide.data(), 3, kAll, dtype, true, reduction);
        if (&kernel == &kernels[0]) {
          plain = wide;
          plain_back = back;
        }
        EXPECT_EQ(std::memcmp(wide.data(), plain.data(), kAll * sizeof(float)), 0);
        EXPECT_TRUE(back == plain_back);
      }
    }
  }
}

// float32 values of every exponent and at every rounding bit, to 16 bits.
TEST(EveryKernelNarrowsToTheSameBits) {
  const std::vector<ArithmeticKernel>& kernels = AvailableKernels();
  std::vector<float> wide;
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {
    for (const uint32_t low : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu, 0x3000u, 0x7fffu, 0x8000u,
                               0x8001u, 0x18000u, 0x7fefffu, 0x7ff000u, 0x7fffffu}) {
      wide.push_back(FloatFromBits(exponent << 23 | low));
    }
  }
  const auto count = static_cast<int64_t>(wide.size());
  const Reduction sum{ReduceOp::kSum, 1.0, 1.0};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<uint16_t> plain(wide.size()), out(wide.size());
    kernels[0].complete(plain.data(), wide.data(), 2, count, dtype, true, sum);
    for (const ArithmeticKernel& kernel : kernels) {
      kernel.complete(out.data(), wide.data(), 2, count, dtype, true, sum);
      EXPECT_TRUE(out == plain);
    }
  }
}

// Any length from and to any address.
TEST(StreamCopyCopies) {
  std::vector<char> from(20000), to(20000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7);
  for (const int64_t bytes : {0, 1, 4095, 4096, 4097, 9000, 16385}) {
    for (const int offset : {0, 1, 33}) {
      std::fill(to.begin(), to.end(), '\0');
      StreamCopy(to.data() + offset, from.data() + 5, bytes);
      const auto end = static_cast<size_t>(bytes);
      EXPECT_EQ(std::memcmp(to.data() + offset, from.data() + 5, end), 0);
      EXPECT_EQ(to[end + static_cast<size_t>(offset)], '\0');
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
