// SharedCounter: a number in shared memory that one process advances and others wait for. The
// waiting spins briefly, then yields, then sleeps in the kernel, so that a waiting rank leaves its
// core to the computation; the advancing side pays for a system call only where somebody sleeps.
//
// Values are compared by their distance, so that wrapping around is harmless.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/base/status.h"

namespace tfhvd {

// What a waiting rank does at long intervals: whether to go on. Not thread-safe.
class Patience {
 public:
  virtual ~Patience() = default;
  // Called every 100 ms of a wait for `rank`; not ok ends the wait.
  virtual Status StillWaiting(int rank, double waited_seconds) = 0;
};

class alignas(64) SharedCounter {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Everything written before is seen by who waits for `value`. One process advances a counter.
  void Set(uint32_t value);

  // Returns once the counter has reached `value`. `rank` is whose counter it is, for Patience.
  Status WaitFor(uint32_t value, int rank, Patience* patience);

 private:
  static bool Reached(uint32_t current, uint32_t value) {
    return static_cast<int32_t>(current - value) >= 0;
  }
  Status SleepFor(uint32_t value, int rank, Patience* patience);

  std::atomic<uint32_t> value_;
  std::atomic<uint32_t> sleepers_;
};

}  // namespace tfhvd
