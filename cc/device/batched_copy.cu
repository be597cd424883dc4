// Copies up to 128 segments in one launch, scaling and casting on the way. grid.y is the number of
// segments; a segment is shared by grid.x blocks.
//
// Made into batched_copy.ptx.inc by build_tools/make_ptx.py. The fake of the driver in
// tests/gpu compiles this very text for the host.
#include "cc/device/batched_copy_args.h"

namespace tfhvd {
namespace kernel {

struct Half {
  unsigned short bits;
};
struct Brain {
  unsigned short bits;
};
struct alignas(16) Line {
  unsigned words[4];
};

#ifdef __CUDACC__
__device__ inline float ToFloat(Half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ inline Half ToHalf(float x) {
  Half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
__device__ inline unsigned Bits(float x) { return __float_as_uint(x); }
__device__ inline float FromBits(unsigned x) { return __uint_as_float(x); }
#endif

__device__ inline float ToFloat(Brain x) { return FromBits(static_cast<unsigned>(x.bits) << 16); }
__device__ inline Brain ToBrain(float x) {
  const unsigned bits = Bits(x);
  Brain y;
  y.bits = static_cast<unsigned short>((bits & 0x7fffffffu) > 0x7f800000u
                                           ? (bits >> 16) | 0x0040u
                                           : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  return y;
}

// How each type is scaled: floats in their own precision, 16-bit ones in float32 and rounded once.
template <typename T>
__device__ inline T Scaled(T x, double factor) {
  return static_cast<T>(static_cast<double>(x) * factor);
}
template <>
__device__ inline float Scaled(float x, double factor) {
  return x * static_cast<float>(factor);
}

template <typename To, typename From>
struct Convert {
  __device__ static To Of(From x, double factor) { return Scaled(x, factor); }
};
template <>
struct Convert<Half, Half> {
  __device__ static Half Of(Half x, double f) { return ToHalf(Scaled(ToFloat(x), f)); }
};
template <>
struct Convert<Brain, Brain> {
  __device__ static Brain Of(Brain x, double f) { return ToBrain(Scaled(ToFloat(x), f)); }
};
template <>
struct Convert<Half, float> {
  __device__ static Half Of(float x, double f) { return ToHalf(Scaled(x, f)); }
};
template <>
struct Convert<Brain, float> {
  __device__ static Brain Of(float x, double f) { return ToBrain(Scaled(x, f)); }
};
template <>
struct Convert<float, Half> {
  __device__ static float Of(Half x, double f) { return Scaled(ToFloat(x), f); }
};
template <>
struct Convert<float, Brain> {
  __device__ static float Of(Brain x, double f) { return Scaled(ToFloat(x), f); }
};

__device__ inline long long First() {
  return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline long long Step() { return static_cast<long long>(gridDim.x) * blockDim.x; }

template <typename To, typename From>
__device__ void Apply(const BatchedCopyArgs::Segment& segment, double factor) {
  To* const to = static_cast<To*>(segment.to);
  const From* const from = static_cast<const From*>(segment.from);
  for (long long i = First(); i < segment.count; i += Step()) {
    to[i] = Convert<To, From>::Of(from[i], factor);
  }
}

// Bytes as they are: 16 at a time where both ends allow it.
__device__ inline void Copy(void* to, const void* from, long long bytes) {
  char* const t = static_cast<char*>(to);
  const char* const f = static_cast<const char*>(from);
  const unsigned long long at = reinterpret_cast<unsigned long long>(t);
  const bool alike = (at - reinterpret_cast<unsigned long long>(f)) % 16 == 0;
  long long head = alike ? static_cast<long long>((16 - at % 16) % 16) : bytes;
  if (head > bytes) head = bytes;
  const long long lines = (bytes - head) / 16;
  for (long long i = First(); i < head; i += Step()) t[i] = f[i];
  Line* const to_lines = reinterpret_cast<Line*>(t + head);
  const Line* const from_lines = reinterpret_cast<const Line*>(f + head);
  for (long long i = First(); i < lines; i += Step()) to_lines[i] = from_lines[i];
  for (long long i = head + lines * 16 + First(); i < bytes; i += Step()) t[i] = f[i];
}

__device__ inline int Bytes(int type) {
  return type == 2 || type == 6 ? 4 : type == 3 || type == 7 ? 8 : type == 4 || type == 5 ? 2 : 1;
}

}  // namespace kernel
}  // namespace tfhvd

// The numbers are those of DType in cc/base/types.h.
extern "C" __global__ void tfhvd_batched_copy(const tfhvd::BatchedCopyArgs args) {
  using namespace tfhvd::kernel;
  const tfhvd::BatchedCopyArgs::Segment& segment = args.segments[blockIdx.y];
  if (args.from_type == args.to_type && args.factor == 1.0) {
    return Copy(segment.to, segment.from, segment.count * Bytes(args.to_type));
  }
  switch (args.from_type * 16 + args.to_type) {
    case 0x00:
      return Apply<unsigned char, unsigned char>(segment, args.factor);
    case 0x11:
      return Apply<signed char, signed char>(segment, args.factor);
    case 0x22:
      return Apply<int, int>(segment, args.factor);
    case 0x33:
      return Apply<long long, long long>(segment, args.factor);
    case 0x44:
      return Apply<Half, Half>(segment, args.factor);
    case 0x55:
      return Apply<Brain, Brain>(segment, args.factor);
    case 0x66:
      return Apply<float, float>(segment, args.factor);
    case 0x77:
      return Apply<double, double>(segment, args.factor);
    case 0x64:
      return Apply<Half, float>(segment, args.factor);
    case 0x65:
      return Apply<Brain, float>(segment, args.factor);
    case 0x46:
      return Apply<float, Half>(segment, args.factor);
    case 0x56:
      return Apply<float, Brain>(segment, args.factor);
  }
}
