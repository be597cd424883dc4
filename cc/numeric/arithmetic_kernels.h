// ArithmeticKernel: the loops of arithmetic.cc, compiled once for each set of instructions. The
// program finds out at run time which sets the processor has.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/types.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {

// All kernels give equal bits. Arguments as in arithmetic.h; `wider`: whether the type between the
// levels differs from the stored one.
struct ArithmeticKernel {
  const char* name;
  void (*reduce)(void* out, const void* const* in, int ranks, int64_t count, DType dtype,
                 const Reduction& reduction, StoreIn store);
  void (*widen)(void* out, const void* in, int64_t count, DType dtype, bool wider, double prescale);
  void (*complete)(void* out, const void* in, int ranks, int64_t count, DType dtype, bool wider,
                   const Reduction& reduction);
};

// Returns the kernels for this processor: "plain" C++ first, the one in use last.
const std::vector<ArithmeticKernel>& AvailableKernels();

}  // namespace tfhvd
