// Copies up to 128 segments in one launch, with scaling and casting. Each block does one part of
// one segment, in accesses of 16 bytes, of which each thread has several in progress: the more
// requests memory has, the faster it is.
//
// build_tools/make_ptx.py makes batched_copy.ptx.inc from this file. The fake driver in tests/gpu
// compiles this very text for the host.
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
// Arrays stay in registers only if every index is known.
#define TFHVD_UNROLL _Pragma("unroll")
#define TFHVD_NO_UNROLL _Pragma("unroll 1")  // at the ends of a part
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

// How each type is scaled: floats in their own precision, 16-bit floats in float32 with one
// rounding.
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

// Casts as many elements as fill 16 bytes of the narrower type. Reads and writes whole lines.
template <typename To, typename From>
struct Pack {
  static constexpr int kNarrow =
      static_cast<int>(sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  static constexpr int kItems = static_cast<int>(sizeof(Line)) / kNarrow;
  static constexpr int kFromLines = static_cast<int>(sizeof(From)) / kNarrow;
  static constexpr int kToLines = static_cast<int>(sizeof(To)) / kNarrow;

  Line lines[kFromLines];

  __device__ void Read(const From* from) {
    const Line* const at = reinterpret_cast<const Line*>(from);
    TFHVD_UNROLL
    for (int i = 0; i < kFromLines; ++i) lines[i] = at[i];
  }
  __device__ void Write(To* to, double factor) const {
    From in[kItems];
    To out[kItems];
    Line made[kToLines];
    memcpy(in, lines, sizeof in);
    TFHVD_UNROLL
    for (int i = 0; i < kItems; ++i) out[i] = Convert<To, From>::Of(in[i], factor);
    memcpy(made, out, sizeof out);
    Line* const at = reinterpret_cast<Line*>(to);
    TFHVD_UNROLL
    for (int i = 0; i < kToLines; ++i) at[i] = made[i];
  }
};

// Copies bytes unchanged.
template <>
struct Pack<char, char> {
  static constexpr int kItems = sizeof(Line);
  static constexpr int kFromLines = 1;
  Line line;
  __device__ void Read(const char* from) { line = *reinterpret_cast<const Line*>(from); }
  __device__ void Write(char* to, double) const { *reinterpret_cast<Line*>(to) = line; }
};
template <>
struct Convert<char, char> {
  __device__ static char Of(char x, double) { return x; }
};

__device__ inline bool IsWhole(const void* p) {
  return reinterpret_cast<unsigned long long>(p) % sizeof(Line) == 0;
}

// Does this thread's share of a block's part: single elements until `to` is aligned, then packs as
// far as both ends allow it, then the remaining elements.
template <typename To, typename From>
__device__ inline void Apply(void* to_part, const void* from_part, long long count,
                             double factor) {
  using Whole = Pack<To, From>;
  constexpr int kAtOnce = 4 / Whole::kFromLines;
  To* const to = static_cast<To*>(to_part);
  const From* const from = static_cast<const From*>(from_part);
  const int threads = static_cast<int>(blockDim.x);
  const int mine = static_cast<int>(threadIdx.x);
  const int all = static_cast<int>(count);
  int head = 0;
  TFHVD_NO_UNROLL
  while (head < all && head < Whole::kItems && !IsWhole(to + head)) ++head;
  const int packs =
      IsWhole(to + head) && IsWhole(from + head) ? (all - head) / Whole::kItems : 0;
  if (packs == 0) head = 0;
  TFHVD_NO_UNROLL
  for (int i = mine; i < head; i += threads) to[i] = Convert<To, From>::Of(from[i], factor);
  int p = mine;
  for (; p + (kAtOnce - 1) * threads < packs; p += kAtOnce * threads) {
    Whole whole[kAtOnce];
    TFHVD_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      whole[k].Read(from + head + (p + k * threads) * Whole::kItems);
    }
    TFHVD_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      whole[k].Write(to + head + (p + k * threads) * Whole::kItems, factor);
    }
  }
  TFHVD_NO_UNROLL
  for (; p < packs; p += threads) {
    Whole whole;
    whole.Read(from + head + p * Whole::kItems);
    whole.Write(to + head + p * Whole::kItems, factor);
  }
  TFHVD_NO_UNROLL
  for (int i = head + packs * Whole::kItems + mine; i < all; i += threads) {
    to[i] = Convert<To, From>::Of(from[i], factor);
  }
}

// Scales integers, which is rare: one element at a time.
template <typename T>
__device__ inline void ScaleIntegers(void* to_part, const void* from_part, long long count,
                                     double factor) {
  T* const to = static_cast<T*>(to_part);
  const T* const from = static_cast<const T*>(from_part);
  TFHVD_NO_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    to[i] = Scaled(from[i], factor);
  }
}

// Returns the segment of this block.
__device__ inline int SegmentOf(const BatchedCopyArgs& args, unsigned block) {
  int found = 0;
  for (int step = kBatchedCopySegments / 2; step > 0; step /= 2) {
    if (found + step < args.segment_count && args.first_block[found + step] <= block) {
      found += step;
    }
  }
  return found;
}

__device__ inline int Bytes(int type) {
  return type == 2 || type == 6 ? 4 : type == 3 || type == 7 ? 8 : type == 4 || type == 5 ? 2 : 1;
}

}  // namespace kernel
}  // namespace tfhvd

// The numbers of the types are those of DType in cc/base/types.h.
extern "C" __global__ void tfhvd_batched_copy(const tfhvd::BatchedCopyArgs args) {
  using namespace tfhvd::kernel;
  const int s = SegmentOf(args, blockIdx.x);
  const tfhvd::BatchedCopyArgs::Segment& segment = args.segments[s];
  const long long begin =
      static_cast<long long>(blockIdx.x - args.first_block[s]) * args.block_items;
  const long long left = segment.count - begin;
  const long long count = left < args.block_items ? left : args.block_items;
  char* const to = static_cast<char*>(segment.to) + begin * Bytes(args.to_type);
  const char* const from = static_cast<const char*>(segment.from) + begin * Bytes(args.from_type);
  if (args.from_type == args.to_type && args.factor == 1.0) {
    return Apply<char, char>(to, from, count * Bytes(args.to_type), 1.0);
  }
  switch (args.from_type * 16 + args.to_type) {
    case 0x00:
      return ScaleIntegers<unsigned char>(to, from, count, args.factor);
    case 0x11:
      return ScaleIntegers<signed char>(to, from, count, args.factor);
    case 0x22:
      return ScaleIntegers<int>(to, from, count, args.factor);
    case 0x33:
      return ScaleIntegers<long long>(to, from, count, args.factor);
    case 0x44:
      return Apply<Half, Half>(to, from, count, args.factor);
    case 0x55:
      return Apply<Brain, Brain>(to, from, count, args.factor);
    case 0x66:
      return Apply<float, float>(to, from, count, args.factor);
    case 0x77:
      return Apply<double, double>(to, from, count, args.factor);
    case 0x64:
      return Apply<Half, float>(to, from, count, args.factor);
    case 0x65:
      return Apply<Brain, float>(to, from, count, args.factor);
    case 0x46:
      return Apply<float, Half>(to, from, count, args.factor);
    case 0x56:
      return Apply<float, Brain>(to, from, count, args.factor);
  }
}
