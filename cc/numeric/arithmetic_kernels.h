// The loops of arithmetic.cc, once for each set of instructions that they are compiled for. Which
// of them the processor has is found out when the program runs.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/types.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {

// All kernels give the same bits. Arguments as of arithmetic.h; `wider`: whether the type between
// the levels is another one.
struct ArithmeticKernel {
  const char* name;
  void (*reduce)(void* out, const void* const* in, int ranks, int64_t count, DType dtype,
                 const Reduction& reduction, StoreIn store);
  void (*widen)(void* out, const void* in, int64_t count, DType dtype, bool wider, double prescale);
  void (*complete)(void* out, const void* in, int ranks, int64_t count, DType dtype, bool wider,
                   const Reduction& reduction);
};

// Those that this processor has: "plain" C++ first, the one that is used last.
const std::vector<ArithmeticKernel>& AvailableKernels();

}  // namespace tfhvd
