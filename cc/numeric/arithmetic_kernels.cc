#include "cc/numeric/arithmetic_kernels.h"

#include "cc/numeric/compat.h"
#include "cc/numeric/element_loops.h"

namespace tfhvd {
namespace {

using Plain = element_loops::Loops<compat::Plain>;
// Distinct from Plain on every processor, so that no function is compiled for two sets of
// instructions.
struct Avx2Isa : compat::Avx2 {};
struct Avx512Isa : compat::Avx512 {};
using Avx2 = element_loops::Loops<Avx2Isa>;
using Avx512 = element_loops::Loops<Avx512Isa>;

TFHVD_AVX2 void ReduceAvx2(void* out, const void* const* in, int ranks, int64_t count, DType dtype,
                           const Reduction& reduction, StoreIn store) {
  Avx2::Reduce(out, in, ranks, count, dtype, reduction, store);
}
TFHVD_AVX2 void WidenAvx2(void* out, const void* in, int64_t count, DType dtype, bool wider,
                          double prescale) {
  Avx2::Widen(out, in, count, dtype, wider, prescale);
}
TFHVD_AVX2 void CompleteAvx2(void* out, const void* in, int ranks, int64_t count, DType dtype,
                             bool wider, const Reduction& reduction) {
  Avx2::Complete(out, in, ranks, count, dtype, wider, reduction);
}

TFHVD_AVX512 void ReduceAvx512(void* out, const void* const* in, int ranks, int64_t count,
                               DType dtype, const Reduction& reduction, StoreIn store) {
  Avx512::Reduce(out, in, ranks, count, dtype, reduction, store);
}
TFHVD_AVX512 void WidenAvx512(void* out, const void* in, int64_t count, DType dtype, bool wider,
                              double prescale) {
  Avx512::Widen(out, in, count, dtype, wider, prescale);
}
TFHVD_AVX512 void CompleteAvx512(void* out, const void* in, int ranks, int64_t count, DType dtype,
                                 bool wider, const Reduction& reduction) {
  Avx512::Complete(out, in, ranks, count, dtype, wider, reduction);
}

std::vector<ArithmeticKernel> Find() {
  std::vector<ArithmeticKernel> found = {{"plain", Plain::Reduce, Plain::Widen, Plain::Complete}};
  if (compat::HasAvx2()) found.push_back({"avx2", ReduceAvx2, WidenAvx2, CompleteAvx2});
  if (compat::HasAvx512()) found.push_back({"avx512", ReduceAvx512, WidenAvx512, CompleteAvx512});
  return found;
}

}  // namespace

const std::vector<ArithmeticKernel>& AvailableKernels() {
  static const std::vector<ArithmeticKernel> kernels = Find();
  return kernels;
}

}  // namespace tfhvd
