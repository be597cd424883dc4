// NcclReduction: how NCCL computes a Reduction: by which of its operations, and with which factors
// of our kernel. A pure function.
//
// NCCL's scaling has two flaws: it keeps the factor in the tensor's type, so that a bfloat16 1/3
// has 8 bits, and it turns off reduction in the network's switches. Our kernel has neither, so a
// plain sum with one factor afterwards is used whenever possible.
#pragma once

#include <optional>

#include "cc/backends/nccl/nccl_abi.h"
#include "cc/base/types.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

struct NcclReduction {
  nccl::RedOp op = nccl::kSum;
  double before = 1.0;  // by our kernel, on the input
  double premul = 1.0;  // by NCCL, on the input: instead of op
  double after = 1.0;   // by our kernel, on the output
};

// Returns nullopt for 16-bit integers, which NCCL does not reduce.
std::optional<nccl::DataType> NcclType(DType dtype);

// Returns nullopt if NCCL cannot compute the exact result: for types that it lacks, and for
// integers that are averaged or scaled, because it would compute in their type. `scale_input`: the
// input may be scaled separately.
std::optional<NcclReduction> PlanNcclReduction(DType dtype, const Reduction& reduction, int ranks,
                                               bool scale_input);

}  // namespace tfhvd
