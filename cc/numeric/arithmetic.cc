#include "cc/numeric/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cc/numeric/arithmetic_kernels.h"
#include "cc/numeric/float_mode.h"
#include "cc/numeric/half.h"

namespace tfhvd {
namespace {

const ArithmeticKernel& Best() { return AvailableKernels().back(); }

template <typename T>
T Neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax:
      if constexpr (Limits::has_infinity) return -Limits::infinity();
      return Limits::lowest();
    case ReduceOp::kProduct:
      return static_cast<T>(1);
    default:
      return static_cast<T>(0);
  }
}

template <typename T>
void FillWith(T value, void* out, int64_t count) {
  std::fill_n(static_cast<T*>(out), count, value);
}

}  // namespace

Status CheckReduction(DType dtype, const Reduction& reduction) {
  const bool adds = reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAverage;
  if (IsComplex(dtype) && !adds) {
    return Status::InvalidArgument(
        std::string("complex tensors are reduced by Sum or Average. Received: op=") +
        ReduceOpName(reduction.op) + ". Reduce tf.math.real(x) and tf.math.imag(x) separately.");
  }
  const bool finite = std::isfinite(reduction.prescale) && std::isfinite(reduction.postscale);
  if (!finite && !IsFloat(dtype) && !IsComplex(dtype)) {
    return Status::InvalidArgument(
        "integers can be scaled by finite factors only. Received: prescale_factor=" +
        std::to_string(reduction.prescale) +
        ", postscale_factor=" + std::to_string(reduction.postscale) +
        ". Expected: finite factors, or a tensor of a floating-point type.");
  }
  if (dtype != DType::kBool) return Status::Ok();
  if (reduction.op != ReduceOp::kMin && reduction.op != ReduceOp::kMax) {
    return Status::InvalidArgument(
        std::string(
            "bool tensors are reduced by Min (logical and) or Max (logical or). Received: op=") +
        ReduceOpName(reduction.op) + ". Cast the tensor to int32 first to count or multiply.");
  }
  if (reduction.prescale != 1.0 || reduction.postscale != 1.0) {
    return Status::InvalidArgument("bool tensors cannot be scaled. Received: prescale_factor=" +
                                   std::to_string(reduction.prescale) + ", postscale_factor=" +
                                   std::to_string(reduction.postscale) + ". Expected: 1.");
  }
  return Status::Ok();
}

void ReduceRanks(void* out, const void* const* in, int ranks, int64_t count, DType dtype,
                 const Reduction& reduction, StoreIn store) {
  const IeeeFloats ieee;
  Best().reduce(out, in, ranks, count, dtype, reduction, store);
}

void FillNeutral(void* out, int64_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kUInt8:
      return FillWith(Neutral<uint8_t>(op), out, count);
    case DType::kInt8:
      return FillWith(Neutral<int8_t>(op), out, count);
    case DType::kInt32:
      return FillWith(Neutral<int32_t>(op), out, count);
    case DType::kInt64:
      return FillWith(Neutral<int64_t>(op), out, count);
    case DType::kFloat16:
      return FillWith(ToFloat16(Neutral<float>(op)).bits, out, count);
    case DType::kBFloat16:
      return FillWith(ToBFloat16(Neutral<float>(op)).bits, out, count);
    case DType::kFloat32:
      return FillWith(Neutral<float>(op), out, count);
    case DType::kFloat64:
      return FillWith(Neutral<double>(op), out, count);
    case DType::kBool:
      return FillWith(Neutral<bool>(op), out, count);
    case DType::kInt16:
      return FillWith(Neutral<int16_t>(op), out, count);
    case DType::kUInt16:
      return FillWith(Neutral<uint16_t>(op), out, count);
    case DType::kUInt32:
      return FillWith(Neutral<uint32_t>(op), out, count);
    case DType::kUInt64:
      return FillWith(Neutral<uint64_t>(op), out, count);
    case DType::kComplex64:
    case DType::kComplex128:
      return;  // never: arithmetic.h
  }
}

DType TypeBetween(DType dtype, const Reduction& reduction) {
  const bool selects = reduction.op == ReduceOp::kMin || reduction.op == ReduceOp::kMax;
  if (selects && reduction.prescale == 1.0) return dtype;  // the result is one of the values
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return DType::kFloat32;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kInt32:
    case DType::kUInt32: {
      // Sums and products that are neither averaged nor scaled may wrap at any level.
      const bool plain = reduction.op != ReduceOp::kAverage && reduction.prescale == 1.0 &&
                         reduction.postscale == 1.0;
      return plain ? dtype : DType::kInt64;
    }
    default:
      return dtype;
  }
}

Reduction Between(const Reduction& reduction) {
  Reduction between;
  between.op = reduction.op == ReduceOp::kAverage ? ReduceOp::kSum : reduction.op;
  return between;
}

void Widen(void* out, const void* in, int64_t count, DType dtype, const Reduction& reduction) {
  const bool wider = TypeBetween(dtype, reduction) != dtype;
  if (!wider && reduction.prescale == 1.0) {
    if (out != in && count > 0) std::memcpy(out, in, static_cast<size_t>(count * ItemSize(dtype)));
    return;
  }
  const IeeeFloats ieee;
  Best().widen(out, in, count, dtype, wider, reduction.prescale);
}

void Complete(void* out, const void* in, int ranks, int64_t count, DType dtype,
              const Reduction& reduction) {
  const bool wider = TypeBetween(dtype, reduction) != dtype;
  const bool final = reduction.op != ReduceOp::kAverage && reduction.postscale == 1.0;
  if (!wider && final) {
    if (out != in && count > 0) std::memcpy(out, in, static_cast<size_t>(count * ItemSize(dtype)));
    return;
  }
  const IeeeFloats ieee;
  Best().complete(out, in, ranks, count, dtype, wider, reduction);
}

}  // namespace tfhvd
