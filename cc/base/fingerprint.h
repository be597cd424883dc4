// A 64-bit fingerprint of bytes, which shows ranks whether their weights are equal. Pure.
//
// Two blocks of one size that differ in only one aligned 8-byte word never have the same
// fingerprint; other blocks have it by chance, once in 2^64. It depends on positions and bits, not
// on values: -0.0 and 0.0 differ. It gives no protection against an attacker who searches for two
// equal fingerprints.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tfhvd {

// `data` may be null if `bytes` is 0, and need not be aligned.
uint64_t Fingerprint(const void* data, size_t bytes);

}  // namespace tfhvd
