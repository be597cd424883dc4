// The only place that asks the compiler which processor it compiles for. Whole functions, one
// branch a family.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>

namespace tfhvd {
namespace compat {

inline void Pause() { _mm_pause(); }
inline bool HasAvx512() { return __builtin_cpu_supports("avx512f"); }
inline bool HasAvx2() { return __builtin_cpu_supports("avx2"); }

// Bytes up to the next line of 64, so that streaming stores are aligned.
inline int64_t ToLine(const char* p, int64_t bytes) {
  const int64_t gap = static_cast<int64_t>((64 - reinterpret_cast<uintptr_t>(p) % 64) % 64);
  return gap < bytes ? gap : bytes;
}

__attribute__((target("avx512f"))) inline void StreamCopyAvx512(char* to, const char* from,
                                                                int64_t bytes) {
  const int64_t head = ToLine(to, bytes);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t i = head;
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
  _mm_sfence();
}

__attribute__((target("avx2"))) inline void StreamCopyAvx2(char* to, const char* from,
                                                           int64_t bytes) {
  const int64_t head = ToLine(to, bytes);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t i = head;
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
  _mm_sfence();
}

}  // namespace compat
}  // namespace tfhvd

#else  // any other processor: what the compiler makes of plain C++

namespace tfhvd {
namespace compat {

inline void Pause() {}
inline bool HasAvx512() { return false; }
inline bool HasAvx2() { return false; }
inline void StreamCopyAvx512(char*, const char*, int64_t) {}
inline void StreamCopyAvx2(char*, const char*, int64_t) {}

}  // namespace compat
}  // namespace tfhvd

#endif
