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

// Whom a wait for another rank's counter asks whether to go on. Not thread-safe.
class PeerWaitMonitor {
 public:
  virtual ~PeerWaitMonitor() = default;
  // Called when a WaitPacer says so; not ok ends the wait.
  virtual Status OnPeerWait(int rank, double waited_seconds) = 0;
};

class alignas(64) SharedCounter {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Everything written before is seen by who waits for `value`. One process advances a counter.
  void Set(uint32_t value);

  // Returns once the counter has reached `value`, or the monitor ends the wait. `rank` is whose
  // counter it is.
  Status WaitFor(uint32_t value, int rank, PeerWaitMonitor* monitor);

  // Ends the sleep of whoever waits, so that it asks its monitor. Any process.
  void WakeSleepers();

 private:
  static bool Reached(uint32_t current, uint32_t value) {
    return static_cast<int32_t>(current - value) >= 0;
  }
  Status SleepFor(uint32_t value, int rank, PeerWaitMonitor* monitor);

  std::atomic<uint32_t> value_;
  std::atomic<uint32_t> sleepers_;
};

}  // namespace tfhvd
