// WaitMonitor: decides whether a rank that waits within a collective continues to wait.
//
// Every blocking wait of a Communicator calls OnWait, the first time after about a millisecond and
// then at least every 100 ms; WaitPacer says when. While a rank waits, nothing else runs on its
// engine's thread: through the monitor messages are read, rank 0 continues to coordinate, and a
// failure that another rank has noticed ends the wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

// A wait in progress.
struct Wait {
  const char* call = "";   // the call that the rank is in, for people: "MPI allreduce"
  std::vector<int> ranks;  // the ranks that it waits for, by their numbers in the job; ascending
  double seconds = 0.0;    // since the last progress
};

class WaitMonitor {
 public:
  virtual ~WaitMonitor() = default;

  // Called by the waiting thread, without a lock held. An error ends the wait: the waiting call
  // returns it. Must not call the waiting communicator, except Poll and Abort.
  virtual Status OnWait(const Wait& wait) = 0;
};

// When a wait calls its monitor: soon at first, because other ranks may need messages that this
// rank passes on, and ever less often while there is no progress.
class WaitPacer {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns how long to sleep at most before the monitor is called.
  std::chrono::nanoseconds interval() const { return interval_; }

  // Returns the seconds since the wait began, or since the last progress.
  double waited() const { return std::chrono::duration<double>(Clock::now() - since_).count(); }

  // Returns whether `interval` has passed; if so, the next one is longer.
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
