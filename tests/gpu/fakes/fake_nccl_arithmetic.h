// The reductions of the fake for NCCL: each step rounded to the tensor's type, beginning at
// another rank from block to block. On purpose not what the host's backends compute: tests must not
// expect more of NCCL than it promises.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc/backends/nccl/nccl_abi.h"
#include "cc/numeric/half.h"

namespace fake {

inline size_t ItemSize(int type) {
  using namespace tfhvd::nccl;
  if (type == kInt64 || type == kUint64 || type == kFloat64) return 8;
  if (type == kInt32 || type == kUint32 || type == kFloat32) return 4;
  return type == kFloat16 || type == kBfloat16 ? 2 : 1;
}

template <typename T>
struct Arithmetic {
  using Wide = std::conditional_t<std::is_floating_point<T>::value, T, uint64_t>;
  static Wide Load(T x) { return static_cast<Wide>(x); }
  static T Store(Wide x) { return static_cast<T>(x); }
};
template <>
struct Arithmetic<tfhvd::Float16> {
  static float Load(tfhvd::Float16 x) { return tfhvd::ToFloat(x); }
  static tfhvd::Float16 Store(float x) { return tfhvd::ToFloat16(x); }
};
template <>
struct Arithmetic<tfhvd::BFloat16> {
  static float Load(tfhvd::BFloat16 x) { return tfhvd::ToFloat(x); }
  static tfhvd::BFloat16 Store(float x) { return tfhvd::ToBFloat16(x); }
};

template <typename T>
bool Less(T a, T b) {
  if constexpr (std::is_arithmetic<T>::value) {
    return a < b;
  } else {
    return tfhvd::ToFloat(a) < tfhvd::ToFloat(b);
  }
}

template <typename T>
T Combine(T a, T b, int op) {
  using A = Arithmetic<T>;
  if (op == tfhvd::nccl::kMax) return Less(a, b) ? b : a;
  if (op == tfhvd::nccl::kMin) return Less(b, a) ? b : a;
  if (op == tfhvd::nccl::kProd) return A::Store(A::Load(a) * A::Load(b));
  return A::Store(A::Load(a) + A::Load(b));
}

template <typename T>
T Premultiplied(T x, double factor) {
  using A = Arithmetic<T>;
  if (factor == 1.0) return x;
  if constexpr (std::is_integral<T>::value) {
    return static_cast<T>(x * static_cast<T>(factor));
  } else if constexpr (std::is_floating_point<T>::value) {
    return x * static_cast<T>(factor);
  } else {  // the factor too is of the tensor's type
    return A::Store(A::Load(x) * A::Load(A::Store(static_cast<float>(factor))));
  }
}

template <typename T>
void ReduceTyped(const std::vector<const char*>& in, size_t first, char* out, size_t count, int op,
                 double factor) {
  for (size_t i = 0; i < count; ++i) {
    T sum = {};
    for (size_t k = 0; k < in.size(); ++k) {
      const size_t r = (first + k) % in.size();
      const T x = Premultiplied(reinterpret_cast<const T*>(in[r])[i], factor);
      sum = k == 0 ? x : Combine(sum, x, op);
    }
    reinterpret_cast<T*>(out)[i] = sum;
  }
}

// out[i] = in[first][i] op in[first + 1][i] ..., the ranks taken in a circle.
inline void Reduce(const std::vector<const char*>& in, size_t first, char* out, size_t count,
                   int type, int op, double factor) {
  using namespace tfhvd;
  switch (type) {
    case nccl::kInt8:
      return ReduceTyped<int8_t>(in, first, out, count, op, factor);
    case nccl::kUint8:
      return ReduceTyped<uint8_t>(in, first, out, count, op, factor);
    case nccl::kInt32:
      return ReduceTyped<int32_t>(in, first, out, count, op, factor);
    case nccl::kUint32:
      return ReduceTyped<uint32_t>(in, first, out, count, op, factor);
    case nccl::kUint64:
      return ReduceTyped<uint64_t>(in, first, out, count, op, factor);
    case nccl::kInt64:
      return ReduceTyped<int64_t>(in, first, out, count, op, factor);
    case nccl::kFloat16:
      return ReduceTyped<Float16>(in, first, out, count, op, factor);
    case nccl::kBfloat16:
      return ReduceTyped<BFloat16>(in, first, out, count, op, factor);
    case nccl::kFloat32:
      return ReduceTyped<float>(in, first, out, count, op, factor);
    case nccl::kFloat64:
      return ReduceTyped<double>(in, first, out, count, op, factor);
  }
}

}  // namespace fake
