// The only place that asks for the compiler and the processor. Whole functions, one branch for each
// family.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/numeric/half.h"

// For a loop in which no iteration reads what another one writes, even if its arrays may be the
// same.
#if defined(__clang__)
#define TFHVD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define TFHVD_WIDE ""
#else
#define TFHVD_INDEPENDENT _Pragma("GCC ivdep")
#define TFHVD_WIDE ",prefer-vector-width=512"
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

// Defines an Add or Multiply (see Plain): in vectors of `bytes` bytes, four at a time while enough
// elements are left, then one vector at a time, and the last elements one by one.
#define TFHVD_IN_ORDER(attributes, name, T, bytes, place, vectors, scalars)                    \
  attributes static void name(T* to, const T* a, const T* b, int64_t n) {                      \
    typedef T Vector __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));      \
    constexpr int64_t kEach = bytes / static_cast<int64_t>(sizeof(T));                         \
    int64_t i = 0;                                                                             \
    for (; i + 4 * kEach <= n; i += 4 * kEach) {                                               \
      for (int64_t v = i; v < i + 4 * kEach; v += kEach) TFHVD_STEP(Vector, v, place, vectors) \
    }                                                                                          \
    for (; i + kEach <= n; i += kEach) TFHVD_STEP(Vector, i, place, vectors)                   \
    for (; i < n; ++i) TFHVD_STEP(T, i, "x", scalars)                                          \
  }
#define TFHVD_STEP(Type, at, place, instruction)                                \
  {                                                                             \
    Type x = *reinterpret_cast<const Type*>(a + at);                            \
    asm(instruction : "+x"(x) : place(*reinterpret_cast<const Type*>(b + at))); \
    *reinterpret_cast<Type*>(to + at) = x;                                      \
  }
#define TFHVD_VEX_IN_ORDER(attributes, name, T, bytes, instruction, kind)                  \
  TFHVD_IN_ORDER(attributes, name, T, bytes, "xm", "v" instruction "p" kind " %1, %0, %0", \
                 "v" instruction "s" kind " %1, %0, %0")

#define TFHVD_PLAIN_ARITHMETIC                                               \
  TFHVD_IN_ORDER(, Add, float, 16, "x", "addps %1, %0", "addss %1, %0")      \
  TFHVD_IN_ORDER(, Add, double, 16, "x", "addpd %1, %0", "addsd %1, %0")     \
  TFHVD_IN_ORDER(, Multiply, float, 16, "x", "mulps %1, %0", "mulss %1, %0") \
  TFHVD_IN_ORDER(, Multiply, double, 16, "x", "mulpd %1, %0", "mulsd %1, %0")

#else

// As the compiler translates it.
#define TFHVD_PLAIN_ARITHMETIC                                     \
  template <typename T>                                            \
  static void Add(T* to, const T* a, const T* b, int64_t n) {      \
    TFHVD_INDEPENDENT                                              \
    for (int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];           \
  }                                                                \
  template <typename T>                                            \
  static void Multiply(T* to, const T* a, const T* b, int64_t n) { \
    TFHVD_INDEPENDENT                                              \
    for (int64_t i = 0; i < n; ++i) to[i] = a[i] * b[i];           \
  }

#endif

namespace tfhvd {
namespace compat {

// The functions that element_loops.h needs for a set of instructions: conversions of n float16, as
// bits; copies past the caches, which other cores see in order only after a StoreFence; and sums
// and products of n elements, where `to` may equal `a` or `b`.
//
// Of two NaN the processor keeps the first operand, and compilers swap the operands of a + b at
// will, for instance for the last elements but not for those in vectors. Then ranks whose arrays
// are cut differently would get different bits. These sums and products keep the NaN of the first
// operand.
struct Plain {
  TFHVD_PLAIN_ARITHMETIC

  static void Widen(const uint16_t* from, float* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = ToFloat(Float16{from[i]});
  }
  static void Narrow(const float* from, uint16_t* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = ToFloat16(from[i]).bits;
  }
  static void Stream(char* to, const char* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
};

}  // namespace compat
}  // namespace tfhvd

#if defined(__x86_64__)

// Compiles a function, with all functions that it calls, for a set of instructions.
#define TFHVD_AVX2 __attribute__((target("avx2,f16c"), flatten))
#define TFHVD_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c" TFHVD_WIDE), flatten))

namespace tfhvd {
namespace compat {

inline void Pause() { _mm_pause(); }
inline void StoreFence() { _mm_sfence(); }

// The floating-point mode of this thread: the register MXCSR.
using FloatMode = uint32_t;
constexpr FloatMode kIeee = 0x1F80;  // no denormal is flushed, to the nearest, no exception traps
inline FloatMode ReadFloatMode() {
  FloatMode mode = 0;
  asm volatile("stmxcsr %0" : "=m"(mode) : : "memory");
  return mode;
}
inline void WriteFloatMode(FloatMode mode) { asm volatile("ldmxcsr %0" : : "m"(mode) : "memory"); }
// Ignores the flags.
inline bool IsIeee(FloatMode mode) { return (mode & ~FloatMode{0x3F}) == kIeee; }

// Returns the bytes up to the next line of 64, so that streaming stores are aligned.
inline int64_t ToLine(const char* p, int64_t bytes) {
  const int64_t gap = static_cast<int64_t>((64 - reinterpret_cast<uintptr_t>(p) % 64) % 64);
  return gap < bytes ? gap : bytes;
}

inline bool HasF16c() {
  unsigned int a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
inline bool HasAvx2() { return __builtin_cpu_supports("avx2") && HasF16c(); }
inline bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

struct Avx2 {
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx2"))), Add, float, 32, "add", "s")
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx2"))), Add, double, 32, "add", "d")
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx2"))), Multiply, float, 32, "mul", "s")
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx2"))), Multiply, double, 32, "mul", "d")

  __attribute__((target("avx2,f16c"))) static void Widen(const uint16_t* from, float* to,
                                                         int64_t n) {
    for (; n >= 8; n -= 8, from += 8, to += 8) Widen8(from, to);
    uint16_t in[8] = {0};
    float out[8];
    std::copy(from, from + n, in);
    Widen8(in, out);
    std::copy(out, out + n, to);
  }
  __attribute__((target("avx2,f16c"))) static void Narrow(const float* from, uint16_t* to,
                                                          int64_t n) {
    for (; n >= 8; n -= 8, from += 8, to += 8) Narrow8(from, to);
    float in[8] = {0};
    uint16_t out[8];
    std::copy(from, from + n, in);
    Narrow8(in, out);
    std::copy(out, out + n, to);
  }
  __attribute__((target("avx2"))) static void Stream(char* to, const char* from, int64_t bytes) {
    if (bytes <= 0) return;
    int64_t i = ToLine(to, bytes);
    std::memcpy(to, from, static_cast<size_t>(i));
    for (; i + 128 <= bytes; i += 128) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
      const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 64));
      const __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 96));
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 64), c);
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 96), d);
    }
    std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
  }

 private:
  __attribute__((target("avx2,f16c"))) static void Widen8(const uint16_t* from, float* to) {
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  __attribute__((target("avx2,f16c"))) static void Narrow8(const float* from, uint16_t* to) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
  }
};

struct Avx512 {
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx512f"))), Add, float, 64, "add", "s")
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx512f"))), Add, double, 64, "add", "d")
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx512f"))), Multiply, float, 64, "mul", "s")
  TFHVD_VEX_IN_ORDER(__attribute__((target("avx512f"))), Multiply, double, 64, "mul", "d")

  __attribute__((target("avx512f,f16c"))) static void Widen(const uint16_t* from, float* to,
                                                            int64_t n) {
    for (; n >= 16; n -= 16, from += 16, to += 16) {
      const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
      _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(0xffff, halves));
    }
    Avx2::Widen(from, to, n);
  }
  __attribute__((target("avx512f,f16c"))) static void Narrow(const float* from, uint16_t* to,
                                                             int64_t n) {
    for (; n >= 16; n -= 16, from += 16, to += 16) {
      const __m256i halves =
          _mm512_maskz_cvtps_ph(0xffff, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
    }
    Avx2::Narrow(from, to, n);
  }
  __attribute__((target("avx512f"))) static void Stream(char* to, const char* from, int64_t bytes) {
    if (bytes <= 0) return;
    int64_t i = ToLine(to, bytes);
    std::memcpy(to, from, static_cast<size_t>(i));
    for (; i + 256 <= bytes; i += 256) {
      const __m512i a = _mm512_loadu_si512(from + i);
      const __m512i b = _mm512_loadu_si512(from + i + 64);
      const __m512i c = _mm512_loadu_si512(from + i + 128);
      const __m512i d = _mm512_loadu_si512(from + i + 192);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), a);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i + 64), b);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i + 128), c);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i + 192), d);
    }
    std::memcpy(to + i, from + i, static_cast<size_t>(bytes - i));
  }
};

}  // namespace compat
}  // namespace tfhvd

#else  // any other processor: what the compiler makes of plain C++

#define TFHVD_AVX2
#define TFHVD_AVX512

namespace tfhvd {
namespace compat {

// The floating-point mode of this thread: the register FPCR of 64-bit Arm; unknown elsewhere.
using FloatMode = uint64_t;
constexpr FloatMode kIeee = 0;
#if defined(__aarch64__)
inline FloatMode ReadFloatMode() {
  FloatMode mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
  return mode;
}
inline void WriteFloatMode(FloatMode mode) {
  asm volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
#else
inline FloatMode ReadFloatMode() { return kIeee; }
inline void WriteFloatMode(FloatMode) {}
#endif
inline bool IsIeee(FloatMode mode) { return mode == kIeee; }

inline void Pause() {}
inline void StoreFence() {}
inline bool HasAvx512() { return false; }
inline bool HasAvx2() { return false; }
using Avx2 = Plain;
using Avx512 = Plain;

}  // namespace compat
}  // namespace tfhvd

#endif
