// Which threads an MPI lets call it, and whether that is enough for tfhvd.
#pragma once

#include <string>

#include "cc/base/status.h"

namespace tfhvd {

// `level`: of MpiApi::QueryThread. `ours`: tfhvd began MPI, and asked for all. An error where tfhvd
// cannot do with `level`; else `warning` is what the program must keep to, "" where it is nothing.
//
// With kMpiThreadSerialized threads may call MPI one at a time. tfhvd keeps to that by itself: the
// thread that calls hvd.init() meets the other ranks before the engine's thread begins, and ends
// MPI after that has ended. But the engine's thread knows nothing of other callers. So where
// another package has begun MPI, and most likely calls it, that level is refused.
Status CheckMpiThreads(const std::string& library, bool ours, int level, std::string* warning);

}  // namespace tfhvd
