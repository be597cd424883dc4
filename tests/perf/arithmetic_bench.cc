// Prints how fast two ranks' values are added, by type and by the set of instructions: GB/s of what
// one rank has, in blocks that fit a second-level cache. From the root of the source tree, after
// `python setup.py build_core_tests`:
//
//   build/core_tests/arithmetic_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "cc/numeric/arithmetic_kernels.h"

namespace tfhvd {
namespace {

constexpr int64_t kBlockBytes = 128 << 10;
constexpr int kRepetitions = 300;

double GigabytesPerSecond(const ArithmeticKernel& kernel, DType dtype) {
  // Zeros: no operand is special, and none costs more than another.
  std::vector<char> a(kBlockBytes), b(kBlockBytes);
  const void* in[] = {a.data(), b.data()};
  const int64_t count = kBlockBytes / ItemSize(dtype);
  const Reduction sum;
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    kernel.reduce(a.data(), in, 2, count, dtype, sum, StoreIn::kCaches);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    seconds.push_back(took.count());
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(kBlockBytes) / seconds[seconds.size() / 2] / 1e9;
}

void Print() {
  std::printf("%10s", "GB/s");
  for (const ArithmeticKernel& kernel : AvailableKernels()) std::printf(" %8s", kernel.name);
  for (int t = 0; t < kNumRealDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    if (dtype == DType::kBool) continue;
    std::printf("\n%10s", DTypeName(dtype));
    for (const ArithmeticKernel& kernel : AvailableKernels()) {
      std::printf(" %8.1f", GigabytesPerSecond(kernel, dtype));
    }
  }
  std::printf("\n");
}

}  // namespace
}  // namespace tfhvd

int main() { tfhvd::Print(); }
