// The engine's clock: seconds, monotonic, of this process alone.
#pragma once

#include <chrono>

namespace tfhvd {

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tfhvd
