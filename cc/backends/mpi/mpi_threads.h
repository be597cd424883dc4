// MpiThreads: which threads may call an MPI, and whether that is enough for tfhvd.
#pragma once

#include <string>

#include "cc/base/status.h"

namespace tfhvd {

// Checks `level`, the result of MpiApi::QueryThread. `ours`: tfhvd began MPI, and asked for all
// threads. Returns an error if the level is not enough for tfhvd; otherwise sets `warning` to the
// rule that the program must obey, "" if there is none.
//
// With kMpiThreadSerialized only one thread at a time may call MPI. tfhvd itself obeys this: the
// thread that calls hvd.init() connects the other ranks before the engine's thread begins, and ends
// MPI after that thread has ended. But the engine's thread does not know other callers. Therefore
// this level is refused if another package has begun MPI, and most likely calls it.
Status CheckMpiThreads(const std::string& library, bool ours, int level, std::string* warning);

}  // namespace tfhvd
