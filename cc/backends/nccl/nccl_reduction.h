// How a Reduction is computed with NCCL: by which of its operations, and with which factors of
// ours. A pure function.
//
// NCCL's own scaling keeps the factor in the tensor's type, so that a bfloat16 1/3 has 8 bits, and
// switches off the reduction in the network's switches. Our kernel has neither flaw: what can be
// done by a plain sum and one factor afterwards is.
#pragma once

#include <optional>

#include "cc/backends/nccl/nccl_abi.h"
#include "cc/base/types.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

struct NcclReduction {
  nccl::RedOp op = nccl::kSum;
  double before = 1.0;  // by our kernel, on what goes in
  double premul = 1.0;  // by NCCL, on what goes in: instead of op
  double after = 1.0;   // by our kernel, on what comes out
};

// Nothing for 16-bit integers, which NCCL does not reduce.
std::optional<nccl::DataType> NcclType(DType dtype);

// Nothing where NCCL cannot do it exactly: types that it does not have, and integers that are
// averaged or scaled, which it would compute in their own type. `scale_input`: what goes in may be
// scaled apart.
std::optional<NcclReduction> PlanNcclReduction(DType dtype, const Reduction& reduction, int ranks,
                                               bool scale_input);

}  // namespace tfhvd
