// Stands in for farmhash's header, which TensorFlow's headers include and its wheels may lack.
// Declares what they name. Nothing of ours calls it, so there is nothing to link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace util {

using uint128_t = std::pair<uint64_t, uint64_t>;

uint64_t Fingerprint64(const char* data, size_t size);
uint32_t Fingerprint32(const char* data, size_t size);
uint128_t Fingerprint128(const char* data, size_t size);

inline uint64_t Uint128Low64(const uint128_t& x) { return x.first; }
inline uint64_t Uint128High64(const uint128_t& x) { return x.second; }

}  // namespace util
