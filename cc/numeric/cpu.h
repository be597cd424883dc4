// The processor's functions beyond C++: chosen at run time if the instruction set matters, with a
// plain fallback everywhere.
#pragma once

#include <cstdint>

namespace tfhvd {

// Tells the processor that this is a spinning wait.
void CpuRelax();

// Copies `bytes` bytes past the caches, for data that another core reads next: a line that one core
// writes through its cache and another core reads moves several times slower. All writes are
// visible to other cores before a later release store. The ranges must not overlap.
void StreamCopy(void* to, const void* from, int64_t bytes);

// Returns "avx512", "avx2", "sse2" or "plain": the instructions that StreamCopy uses here.
const char* StreamCopyName();

}  // namespace tfhvd
