#include "cc/backends/nccl/nccl_reduction.h"

#include <cmath>

namespace tfhvd {
namespace {

nccl::RedOp NcclOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return nccl::kSum;
    case ReduceOp::kMin:
      return nccl::kMin;
    case ReduceOp::kMax:
      return nccl::kMax;
    case ReduceOp::kProduct:
      return nccl::kProd;
  }
  return nccl::kSum;
}

}  // namespace

std::optional<nccl::DataType> NcclType(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:  // 0 and 1: min is and, max is or
      return nccl::kUint8;
    case DType::kInt8:
      return nccl::kInt8;
    case DType::kInt32:
      return nccl::kInt32;
    case DType::kUInt32:
      return nccl::kUint32;
    case DType::kInt64:
      return nccl::kInt64;
    case DType::kUInt64:
      return nccl::kUint64;
    case DType::kFloat16:
      return nccl::kFloat16;
    case DType::kBFloat16:
      return nccl::kBfloat16;
    case DType::kFloat32:
      return nccl::kFloat32;
    case DType::kFloat64:
      return nccl::kFloat64;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kComplex64:  // never: cc/numeric/arithmetic.h
    case DType::kComplex128:
      break;
  }
  return std::nullopt;
}

std::optional<NcclReduction> PlanNcclReduction(DType dtype, const Reduction& reduction, int ranks,
                                               bool scale_input) {
  if (!NcclType(dtype).has_value()) return std::nullopt;
  const bool sum = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAverage;
  const double divisor = reduction.op == ReduceOp::kAverage ? ranks : 1.0;
  NcclReduction plan;
  plan.op = NcclOp(reduction.op);
  if (divisor == 1.0 && reduction.prescale == 1.0 && reduction.postscale == 1.0) return plan;
  if (!IsFloat(dtype)) return std::nullopt;

  const double factor = reduction.prescale * reduction.postscale / divisor;
  // A sum of float16 may overflow although its mean does not, so the input is scaled down first.
  if (sum && dtype == DType::kFloat16 && reduction.prescale == 1.0 && std::abs(factor) < 1.0) {
    (scale_input ? plan.before : plan.premul) = factor;
    return plan;
  }
  // One factor is enough for a sum, unless the user scales the input so that the sum of a 16-bit
  // type does not overflow.
  const bool narrow = ItemSize(dtype) == 2;
  if (sum && (!narrow || reduction.prescale == 1.0)) {
    plan.after = factor;
    return plan;
  }
  if (reduction.prescale != 1.0 && !scale_input) return std::nullopt;
  plan.before = reduction.prescale;
  plan.after = reduction.postscale / divisor;
  return plan;
}

}  // namespace tfhvd
