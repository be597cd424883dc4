// A 64-bit fingerprint of bytes, by which ranks see whether their weights are equal. Pure.
//
// Two blocks of one size that differ in any one aligned 8-byte word never have the same
// fingerprint; others have it by chance, once in 2^64. It goes by positions, not by values alone:
// -0.0 and 0.0 differ. It is no protection against somebody who looks for two blocks that have the
// same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tfhvd {

// `data` may be null where there are no bytes, and need not be aligned.
uint64_t Fingerprint(const void* data, size_t bytes);

}  // namespace tfhvd
