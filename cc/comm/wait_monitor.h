// WaitMonitor: what a rank that waits within a collective asks whether to wait on.
//
// Every blocking wait of a Communicator calls OnWait, the first time after about a millisecond and
// then at least every 100 ms; WaitPacer says when. While a rank waits, nothing else runs on its
// engine's thread: the monitor is how messages are read, how rank 0 goes on coordinating, and how a
// failure that another rank has noticed ends the wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

// A wait that goes on.
struct Wait {
  const char* call = "";   // what the rank is in, for people: "MPI allreduce"
  std::vector<int> ranks;  // that it waits for, by their numbers in the job; ascending
  double seconds = 0.0;    // since something last moved
};

class WaitMonitor {
 public:
  virtual ~WaitMonitor() = default;

  // Called by the thread that waits, without a lock held. Not ok ends the wait: the call that waits
  // returns it. Must not call the communicator that waits, but for Poll and Abort.
  virtual Status OnWait(const Wait& wait) = 0;
};

// When a wait asks its monitor: soon at first, for others may need what this rank is to pass on,
// and ever less often while nothing moves.
class WaitPacer {
 public:
  using Clock = std::chrono::steady_clock;

  // How long to sleep at most before the monitor is asked.
  std::chrono::nanoseconds interval() const { return interval_; }

  // Seconds since the wait began, or something moved.
  double waited() const { return std::chrono::duration<double>(Clock::now() - since_).count(); }

  // Whether `interval` has passed; then the next one is longer.
  bool Due() {
    const Clock::time_point now = Clock::now();
    if (now - asked_ < interval_) return false;
    asked_ = now;
    if (interval_ < kLongest) interval_ = std::min(interval_ * 2, kLongest);
    return true;
  }

 private:
  static constexpr std::chrono::nanoseconds kFirst = std::chrono::milliseconds(1);
  static constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(100);

  const Clock::time_point since_ = Clock::now();
  Clock::time_point asked_ = since_;
  std::chrono::nanoseconds interval_ = kFirst;
};

}  // namespace tfhvd
