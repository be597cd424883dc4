// What the core asks of the processor beyond C++: chosen at run time where the instruction set
// matters, with a plain fallback everywhere.
#pragma once

#include <cstdint>

namespace tfhvd {

// Tells the processor that this is a spinning wait.
void CpuRelax();

// Copies `bytes` bytes past the caches, for data that another core reads next: a line that is
// written through the cache of one core and read by another moves several times slower. Everything
// is visible to other cores before a later release store. The ranges do not overlap.
void StreamCopy(void* to, const void* from, int64_t bytes);

// "avx512", "avx2", "sse2" or "plain": what StreamCopy uses here.
const char* StreamCopyName();

}  // namespace tfhvd
