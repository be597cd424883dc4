#include "cc/base/arithmetic.h"

#include <algorithm>
#include <cstring>
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

// x_r of a block, widened and prescaled, joined to what the ranks before it gave.
template <typename T, typename Op>
void Accumulate(typename Arithmetic<T>::Acc* acc, const T* x, int64_t n, bool first,
                double prescale) {
  using A = Arithmetic<T>;
  const Op op;
  if (first && prescale == 1.0) {
    for (int64_t i = 0; i < n; ++i) acc[i] = A::Load(x[i]);
  } else if (first) {
    for (int64_t i = 0; i < n; ++i) acc[i] = Scaled(A::Load(x[i]), prescale);
  } else if (prescale == 1.0) {
    for (int64_t i = 0; i < n; ++i) acc[i] = op(acc[i], A::Load(x[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) acc[i] = op(acc[i], Scaled(A::Load(x[i]), prescale));
  }
}

// What follows once all ranks are in.
template <typename Acc>
void Finish(Acc* acc, int64_t n, int ranks, const Reduction& reduction) {
  if (reduction.op == ReduceOp::kAverage) {
    const Acc divisor = static_cast<Acc>(ranks);
    for (int64_t i = 0; i < n; ++i) acc[i] /= divisor;
  }
  if (reduction.postscale != 1.0) {
    for (int64_t i = 0; i < n; ++i) acc[i] = Scaled(acc[i], reduction.postscale);
  }
}

template <typename T, typename Op>
void Reduce(T* out, const void* const* in, int ranks, int64_t count, const Reduction& reduction) {
  using A = Arithmetic<T>;
  typename A::Acc acc[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (int r = 0; r < ranks; ++r) {
      const T* x = static_cast<const T*>(in[r]) + begin;
      Accumulate<T, Op>(acc, x, n, r == 0, reduction.prescale);
    }
    Finish(acc, n, ranks, reduction);
    for (int64_t i = 0; i < n; ++i) out[begin + i] = A::Store(acc[i]);
  }
}

// The same for two ranks' types that are their own accumulators, in one pass: the case where
// arithmetic, not memory, would be the slower part.
template <typename T, typename Op>
void ReducePair(T* out, const void* const* in, int64_t count, const Reduction& reduction) {
  const Op op;
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    for (int64_t i = begin; i < end; ++i) out[i] = op(a[i], b[i]);
    Finish(out + begin, end - begin, 2, reduction);
  }
}

template <typename T, typename Op>
void ReduceBest(T* out, const void* const* in, int ranks, int64_t count,
                const Reduction& reduction) {
  if constexpr (std::is_same<T, typename Arithmetic<T>::Acc>::value) {
    if (ranks == 2 && reduction.prescale == 1.0)
      return ReducePair<T, Op>(out, in, count, reduction);
  }
  Reduce<T, Op>(out, in, ranks, count, reduction);
}

template <typename T>
void ReduceTyped(void* out, const void* const* in, int ranks, int64_t count,
                 const Reduction& reduction) {
  T* typed = static_cast<T*>(out);
  switch (reduction.op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return ReduceBest<T, Add>(typed, in, ranks, count, reduction);
    case ReduceOp::kMin:
      return ReduceBest<T, Minimum>(typed, in, ranks, count, reduction);
    case ReduceOp::kMax:
      return ReduceBest<T, Maximum>(typed, in, ranks, count, reduction);
    case ReduceOp::kProduct:
      return ReduceBest<T, Multiply>(typed, in, ranks, count, reduction);
  }
}

// `Kept` is the type between the levels: T, or its accumulator.
template <typename T, typename Kept>
void WidenTyped(Kept* out, const T* in, int64_t count, double prescale) {
  for (int64_t i = 0; i < count; ++i) {
    auto x = Arithmetic<T>::Load(in[i]);
    if (prescale != 1.0) x = Scaled(x, prescale);
    out[i] = Arithmetic<Kept>::Store(x);
  }
}

template <typename T, typename Kept>
void CompleteTyped(T* out, const Kept* in, int ranks, int64_t count, const Reduction& reduction) {
  typename Arithmetic<T>::Acc acc[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (int64_t i = 0; i < n; ++i) acc[i] = Arithmetic<Kept>::Load(in[begin + i]);
    Finish(acc, n, ranks, reduction);
    for (int64_t i = 0; i < n; ++i) out[begin + i] = Arithmetic<T>::Store(acc[i]);
  }
}

// Calls `act` with a null pointer of the type that stores `dtype`.
template <typename Act>
void WithType(DType dtype, const Act& act) {
  switch (dtype) {
    case DType::kBool:  // 0 and 1: min is and, max is or
    case DType::kUInt8:
      return act(static_cast<uint8_t*>(nullptr));
    case DType::kInt8:
      return act(static_cast<int8_t*>(nullptr));
    case DType::kInt32:
      return act(static_cast<int32_t*>(nullptr));
    case DType::kInt64:
      return act(static_cast<int64_t*>(nullptr));
    case DType::kFloat16:
      return act(static_cast<Float16*>(nullptr));
    case DType::kBFloat16:
      return act(static_cast<BFloat16*>(nullptr));
    case DType::kFloat32:
      return act(static_cast<float*>(nullptr));
    case DType::kFloat64:
      return act(static_cast<double*>(nullptr));
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
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    ReduceTyped<T>(out, in, ranks, count, reduction);
  });
}

DType TypeBetween(DType dtype, const Reduction& reduction) {
  const bool selects = reduction.op == ReduceOp::kMin || reduction.op == ReduceOp::kMax;
  if (selects && reduction.prescale == 1.0) return dtype;  // one of the values
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return DType::kFloat32;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32: {
      // Sums and products that are only stored may wrap at any level.
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
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    using Acc = typename Arithmetic<T>::Acc;
    const T* from = static_cast<const T*>(in);
    if (wider) {
      WidenTyped(static_cast<Acc*>(out), from, count, reduction.prescale);
    } else {
      WidenTyped(static_cast<T*>(out), from, count, reduction.prescale);
    }
  });
}

void Complete(void* out, const void* in, int ranks, int64_t count, DType dtype,
              const Reduction& reduction) {
  const bool wider = TypeBetween(dtype, reduction) != dtype;
  const bool final = reduction.op != ReduceOp::kAverage && reduction.postscale == 1.0;
  if (!wider && final) {
    if (out != in && count > 0) std::memcpy(out, in, static_cast<size_t>(count * ItemSize(dtype)));
    return;
  }
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    using Acc = typename Arithmetic<T>::Acc;
    T* to = static_cast<T*>(out);
    if (wider) {
      CompleteTyped(to, static_cast<const Acc*>(in), ranks, count, reduction);
    } else {
      CompleteTyped(to, static_cast<const T*>(in), ranks, count, reduction);
    }
  });
}

}  // namespace tfhvd
