// The loops over elements of the collectives' arithmetic, written once in plain C++ and compiled
// once for each set of instructions (arithmetic_kernels.cc). `Isa` is a class of compat.h: it
// converts float16, which compilers do not vectorise well, stores past the caches, and makes the
// instances of one set distinct from another's.
//
// Every set of instructions gives equal bits: the order of operations is fixed, and for NaN the
// order of operands, too (compat.h), and nothing is contracted (-ffp-contract=off).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cc/base/types.h"
#include "cc/numeric/compat.h"
#include "cc/numeric/half.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {
namespace element_loops {

// Elements per block: the intermediate values of a block stay in the first-level cache.
constexpr int64_t kBlock = 1024;

// Bytes of a result that bypass the caches in one step: with more, its sources would be pushed out
// of the first-level cache (docs/performance.md).
constexpr int64_t kStreamed = 2048;

// The accumulator of a stored type. Small integers are summed in 64 bits, so that their average
// does not wrap.
template <typename T>
struct AccumulatorOf {
  using Type = std::conditional_t<std::is_floating_point<T>::value, T, int64_t>;
};
template <>
struct AccumulatorOf<uint64_t> {
  using Type = uint64_t;
};
template <>
struct AccumulatorOf<Float16> {
  using Type = float;
};
template <>
struct AccumulatorOf<BFloat16> {
  using Type = float;
};
template <typename T>
using Accumulator = typename AccumulatorOf<T>::Type;

// Integer sums and products wrap, as in TensorFlow, without undefined behaviour.
template <typename T>
using Wrapping = std::conditional_t<std::is_integral<T>::value, uint64_t, T>;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    using W = Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    using W = Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
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
  } else if constexpr (std::is_unsigned<Acc>::value) {
    constexpr double kBeyond = 18446744073709551616.0;  // 2^64
    const double scaled = static_cast<double>(x) * factor;
    // A negative number wraps, as in the narrower types; a too large one becomes the largest.
    if (scaled < 0.0) return static_cast<Acc>(static_cast<int64_t>(scaled));
    return scaled < kBeyond ? static_cast<Acc>(scaled) : ~Acc{0};
  } else {
    return static_cast<Acc>(static_cast<double>(x) * factor);
  }
}

template <typename Isa>
struct Loops {
  // Widens n elements, n <= kBlock. `to` may equal `from` if the types are equal.
  template <typename Acc, typename T>
  static void Load(Acc* to, const T* from, int64_t n) {
    if constexpr (std::is_same<T, Float16>::value) {
      Isa::Widen(reinterpret_cast<const uint16_t*>(from), to, n);
    } else if constexpr (std::is_same<T, BFloat16>::value) {
      TFHVD_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = ToFloat(from[i]);
    } else {
      TFHVD_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<Acc>(from[i]);
    }
  }

  template <typename T, typename Acc>
  static void Store(T* to, const Acc* from, int64_t n) {
    if constexpr (std::is_same<T, Float16>::value) {
      Isa::Narrow(from, reinterpret_cast<uint16_t*>(to), n);
    } else if constexpr (std::is_same<T, BFloat16>::value) {
      TFHVD_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = ToBFloat16(from[i]);
    } else {
      TFHVD_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
    }
  }

  template <typename Acc>
  static void Scale(Acc* acc, int64_t n, double factor) {
    if (factor == 1.0) return;
    TFHVD_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) acc[i] = Scaled(acc[i], factor);
  }

  // Applies the steps after the values of all ranks are combined.
  template <typename Acc>
  static void Finish(Acc* acc, int64_t n, int ranks, const Reduction& reduction) {
    if (reduction.op == ReduceOp::kAverage) {
      const Acc divisor = static_cast<Acc>(ranks);
      TFHVD_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) acc[i] /= divisor;
    }
    Scale(acc, n, reduction.postscale);
  }

  // to[i] = a[i] op b[i]. The operation is chosen once for each block, so that the surrounding code
  // is compiled once for a type and not for each operation.
  template <typename T>
  static void Combine(T* to, const T* a, const T* b, int64_t n, ReduceOp op) {
    switch (op) {
      case ReduceOp::kAverage:
      case ReduceOp::kSum:
        return CombineBy<Add>(to, a, b, n);
      case ReduceOp::kMin:
        return CombineBy<Minimum>(to, a, b, n);
      case ReduceOp::kMax:
        return CombineBy<Maximum>(to, a, b, n);
      case ReduceOp::kProduct:
        return CombineBy<Multiply>(to, a, b, n);
    }
  }

  template <typename Op, typename T>
  static void CombineBy(T* to, const T* a, const T* b, int64_t n) {
    const Op op;
    TFHVD_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) to[i] = op(a[i], b[i]);
  }

  // Combine for arrays of the ranks, in which an element may be among the last of a loop on one
  // rank and not on another one: of two NaN, all ranks keep the bits of the first.
  template <typename T>
  static void CombineInOrder(T* to, const T* a, const T* b, int64_t n, ReduceOp op) {
    if constexpr (std::is_floating_point<T>::value) {
      if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return Isa::Add(to, a, b, n);
      if (op == ReduceOp::kProduct) return Isa::Multiply(to, a, b, n);
    }
    Combine(to, a, b, n, op);
  }

  // The general case: each rank's values are widened, scaled, and combined with the result of the
  // ranks before.
  template <typename Acc, typename T>
  static void ReduceBlocks(T* out, const void* const* in, int ranks, int64_t count,
                           const Reduction& reduction, StoreIn store) {
    Acc acc[kBlock];
    Acc next[kBlock];
    T near[kBlock];
    int64_t n = FirstStep(out, kBlock, store);
    for (int64_t begin = 0; begin < count; begin += n, n = kBlock) {
      n = std::min(n, count - begin);
      for (int r = 0; r < ranks; ++r) {
        Acc* const to = r == 0 ? acc : next;
        Load(to, static_cast<const T*>(in[r]) + begin, n);
        Scale(to, n, reduction.prescale);
        if (r > 0) Combine<Acc>(acc, acc, next, n, reduction.op);
      }
      Finish(acc, n, ranks, reduction);
      if (store == StoreIn::kCaches) {
        Store(out + begin, acc, n);
      } else {
        Store(near, acc, n);
        Stream(out + begin, near, n);
      }
    }
  }

  template <typename T>
  static constexpr int64_t StreamedAtOnce() {
    return std::min(kBlock, kStreamed / static_cast<int64_t>(sizeof(T)));
  }

  // Returns the number of elements in the first of many steps of `step`. Past the caches, all steps
  // end with a line of the result, so that only its first and last line are written in parts.
  template <typename T>
  static int64_t FirstStep(const T* out, int64_t step, StoreIn store) {
    if (store == StoreIn::kCaches) return step;
    return step - static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % 64 / sizeof(T));
  }

  // Writes a finished block past the caches.
  template <typename T>
  static void Stream(T* to, const T* from, int64_t n) {
    Isa::Stream(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(from),
                n * static_cast<int64_t>(sizeof(T)));
  }

  // The case without widening and prescaling: one pass for the first two ranks, and one for each of
  // the others.
  template <typename T>
  static void ReducePlain(T* out, const void* const* in, int ranks, int64_t count,
                          const Reduction& reduction, StoreIn store) {
    alignas(64) T acc[kBlock];
    const int64_t block = store == StoreIn::kCaches ? kBlock : StreamedAtOnce<T>();
    int64_t n = FirstStep(out, block, store);
    for (int64_t begin = 0; begin < count; begin += n, n = block) {
      n = std::min(n, count - begin);
      T* const result = store == StoreIn::kCaches ? out + begin : acc;
      const T* before = static_cast<const T*>(in[0]) + begin;
      for (int r = 1; r < ranks; ++r) {
        // The result may be in the memory of any rank's values, and later ranks' values are still
        // to be read.
        T* const to = r + 1 == ranks ? result : acc;
        CombineInOrder<T>(to, before, static_cast<const T*>(in[r]) + begin, n, reduction.op);
        before = acc;
      }
      if constexpr (std::is_same<T, Accumulator<T>>::value) Finish(result, n, ranks, reduction);
      if (store == StoreIn::kMemory) Stream(out + begin, acc, n);
    }
  }

  template <typename T>
  static void ReduceTyped(void* out, const void* const* in, int ranks, int64_t count,
                          const Reduction& reduction, StoreIn store) {
    using Acc = Accumulator<T>;
    constexpr bool kHalf = std::is_class<T>::value;
    T* const typed = static_cast<T*>(out);
    if constexpr (!kHalf) {
      // Integers that are only stored may wrap on the way.
      const bool stored = reduction.op != ReduceOp::kAverage && reduction.postscale == 1.0;
      const bool plain = reduction.prescale == 1.0 && (std::is_same<T, Acc>::value || stored);
      if (plain && ranks >= 2) return ReducePlain<T>(typed, in, ranks, count, reduction, store);
    }
    ReduceBlocks<Acc, T>(typed, in, ranks, count, reduction, store);
  }

  // `Kept` is the type between the levels: T, or its accumulator.
  template <typename T, typename Kept>
  static void WidenTyped(Kept* out, const T* in, int64_t count, double prescale) {
    Accumulator<T> acc[kBlock];
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      Load(acc, in + begin, n);
      Scale(acc, n, prescale);
      Store(out + begin, acc, n);
    }
  }

  template <typename T, typename Kept>
  static void CompleteTyped(T* out, const Kept* in, int ranks, int64_t count,
                            const Reduction& reduction) {
    Accumulator<T> acc[kBlock];
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t n = std::min(kBlock, count - begin);
      Load(acc, in + begin, n);
      Finish(acc, n, ranks, reduction);
      Store(out + begin, acc, n);
    }
  }

  // Calls `act` with a null pointer of the type that stores `dtype`.
  template <typename Act>
  static void WithType(DType dtype, const Act& act) {
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
      case DType::kInt16:
        return act(static_cast<int16_t*>(nullptr));
      case DType::kUInt16:
        return act(static_cast<uint16_t*>(nullptr));
      case DType::kUInt32:
        return act(static_cast<uint32_t*>(nullptr));
      case DType::kUInt64:
        return act(static_cast<uint64_t*>(nullptr));
      case DType::kComplex64:
      case DType::kComplex128:
        return;  // never: arithmetic.h
    }
  }

  // The three functions of arithmetic.h.
  static void Reduce(void* out, const void* const* in, int ranks, int64_t count, DType dtype,
                     const Reduction& reduction, StoreIn store) {
    WithType(dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      ReduceTyped<T>(out, in, ranks, count, reduction, store);
    });
    if (store == StoreIn::kMemory) compat::StoreFence();
  }

  static void Widen(void* out, const void* in, int64_t count, DType dtype, bool wider,
                    double prescale) {
    WithType(dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      const T* from = static_cast<const T*>(in);
      if (wider) {
        WidenTyped(static_cast<Accumulator<T>*>(out), from, count, prescale);
      } else {
        WidenTyped(static_cast<T*>(out), from, count, prescale);
      }
    });
  }

  static void Complete(void* out, const void* in, int ranks, int64_t count, DType dtype, bool wider,
                       const Reduction& reduction) {
    WithType(dtype, [&](auto* type) {
      using T = std::remove_pointer_t<decltype(type)>;
      T* to = static_cast<T*>(out);
      if (wider) {
        CompleteTyped(to, static_cast<const Accumulator<T>*>(in), ranks, count, reduction);
      } else {
        CompleteTyped(to, static_cast<const T*>(in), ranks, count, reduction);
      }
    });
  }
};

}  // namespace element_loops
}  // namespace tfhvd
