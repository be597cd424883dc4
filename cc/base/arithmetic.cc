#include "cc/base/arithmetic.h"

#include <algorithm>
#include <type_traits>

#include "cc/base/half.h"

namespace tfhvd {
namespace {

// Elements per block: the accumulators of a block stay in the first-level cache.
constexpr int64_t kBlock = 1024;

// How a stored type is combined: Acc is the type of the accumulator. Small integers are summed in
// 64 bits, so that their average does not wrap.
template <typename T>
struct Arithmetic {
  using Acc = std::conditional_t<std::is_floating_point<T>::value, T, int64_t>;
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static T Store(Acc x) { return static_cast<T>(x); }
};
template <>
struct Arithmetic<Float16> {
  using Acc = float;
  static float Load(Float16 x) { return ToFloat(x); }
  static Float16 Store(float x) { return ToFloat16(x); }
};
template <>
struct Arithmetic<BFloat16> {
  using Acc = float;
  static float Load(BFloat16 x) { return ToFloat(x); }
  static BFloat16 Store(float x) { return ToBFloat16(x); }
};

// Integer sums and products wrap, as in TensorFlow, without undefined behaviour.
struct Add {
  float operator()(float a, float b) const { return a + b; }
  double operator()(double a, double b) const { return a + b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Multiply {
  float operator()(float a, float b) const { return a * b; }
  double operator()(double a, double b) const { return a * b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
// A NaN of any rank is the result: b != b only for NaN.
struct Minimum {
  template <typename T>
  T operator()(T a, T b) const {
    return (b < a || b != b) ? b : a;
  }
};
struct Maximum {
  template <typename T>
  T operator()(T a, T b) const {
    return (b > a || b != b) ? b : a;
  }
};

template <typename Acc>
Acc Scaled(Acc x, double factor) {
  if constexpr (std::is_floating_point<Acc>::value) {
    return x * static_cast<Acc>(factor);
  } else {
    return static_cast<Acc>(static_cast<double>(x) * factor);
  }
}

template <typename T, typename Op>
void Reduce(T* out, const void* const* in, int ranks, int64_t count, const Reduction& reduction) {
  using A = Arithmetic<T>;
  using Acc = typename A::Acc;
  const Op op;
  const double pre = reduction.prescale;
  const double post = reduction.postscale;
  const bool average = reduction.op == ReduceOp::kAverage;
  Acc acc[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (int r = 0; r < ranks; ++r) {
      const T* x = static_cast<const T*>(in[r]) + begin;
      if (pre != 1.0) {
        if (r == 0) {
          for (int64_t i = 0; i < n; ++i) acc[i] = Scaled(A::Load(x[i]), pre);
        } else {
          for (int64_t i = 0; i < n; ++i) acc[i] = op(acc[i], Scaled(A::Load(x[i]), pre));
        }
      } else if (r == 0) {
        for (int64_t i = 0; i < n; ++i) acc[i] = A::Load(x[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) acc[i] = op(acc[i], A::Load(x[i]));
      }
    }
    if (average) {
      const Acc divisor = static_cast<Acc>(ranks);
      for (int64_t i = 0; i < n; ++i) acc[i] /= divisor;
    }
    if (post != 1.0) {
      for (int64_t i = 0; i < n; ++i) acc[i] = Scaled(acc[i], post);
    }
    for (int64_t i = 0; i < n; ++i) out[begin + i] = A::Store(acc[i]);
  }
}

template <typename T>
void ReduceTyped(void* out, const void* const* in, int ranks, int64_t count,
                 const Reduction& reduction) {
  T* typed = static_cast<T*>(out);
  switch (reduction.op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return Reduce<T, Add>(typed, in, ranks, count, reduction);
    case ReduceOp::kMin:
      return Reduce<T, Minimum>(typed, in, ranks, count, reduction);
    case ReduceOp::kMax:
      return Reduce<T, Maximum>(typed, in, ranks, count, reduction);
    case ReduceOp::kProduct:
      return Reduce<T, Multiply>(typed, in, ranks, count, reduction);
  }
}

}  // namespace

Status CheckReduction(DType dtype, const Reduction& reduction) {
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
                 const Reduction& reduction) {
  switch (dtype) {
    case DType::kBool:  // 0 and 1: min is and, max is or
    case DType::kUInt8:
      return ReduceTyped<uint8_t>(out, in, ranks, count, reduction);
    case DType::kInt8:
      return ReduceTyped<int8_t>(out, in, ranks, count, reduction);
    case DType::kInt32:
      return ReduceTyped<int32_t>(out, in, ranks, count, reduction);
    case DType::kInt64:
      return ReduceTyped<int64_t>(out, in, ranks, count, reduction);
    case DType::kFloat16:
      return ReduceTyped<Float16>(out, in, ranks, count, reduction);
    case DType::kBFloat16:
      return ReduceTyped<BFloat16>(out, in, ranks, count, reduction);
    case DType::kFloat32:
      return ReduceTyped<float>(out, in, ranks, count, reduction);
    case DType::kFloat64:
      return ReduceTyped<double>(out, in, ranks, count, reduction);
  }
}

}  // namespace tfhvd
