// SharedCounter: a number in shared memory that one process increases and others wait for. A
// waiting process spins briefly, then yields, then sleeps in the kernel, so that it leaves its core
// to the computation. The increasing process makes a system call only if another one sleeps.
//
// Values are compared by their distance, so that wrapping around is harmless.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/base/status.h"

namespace tfhvd {

// Called while a rank waits for another rank's counter, to decide whether to continue. Not
// thread-safe.
class PeerWaitMonitor {
 public:
  virtual ~PeerWaitMonitor() = default;
  // Called when a WaitPacer says so; an error ends the wait.
  virtual Status OnPeerWait(int rank, double waited_seconds) = 0;
};

class alignas(64) SharedCounter {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  // Sets the counter. A process that waits for `value` sees everything written before. Only one
  // process sets a counter.
  void Set(uint32_t value);

  // Returns when the counter has reached `value`, or the monitor ends the wait. `rank`: the owner
  // of the counter.
  Status WaitFor(uint32_t value, int rank, PeerWaitMonitor* monitor);

  // Ends the sleep of waiting processes, so that they call their monitors. Any process.
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
