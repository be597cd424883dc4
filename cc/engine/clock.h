// The engine's clock: seconds, monotonic, valid in this process only.
#pragma once

#include <chrono>

namespace tfhvd {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tfhvd
