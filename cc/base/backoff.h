// Backoff: how a thread waits for something that nothing will wake it for (a vendor's library that
// must be polled). It spins briefly, then yields, then sleeps, so that a waiting rank leaves the
// core to the computation. Not thread-safe: one per waiting thread.
#pragma once

#include <sched.h>
#include <time.h>

namespace tfhvd {

class Backoff {
 public:
  enum Start { kSpinFirst, kSleepAtOnce };

  // max_sleep_ns: the longest single sleep, reached by doubling.
  explicit Backoff(long max_sleep_ns = 100000, Start start = kSpinFirst)
      : max_sleep_ns_(max_sleep_ns), start_(start) {
    Reset();
  }

  void Reset() {
    round_ = start_ == kSpinFirst ? 0 : kSpins + kYields;
    sleep_ns_ = kFirstSleepNs;
  }

  // How long Pause would sleep next: 0 while it still spins or yields.
  long next_sleep_ns() const { return round_ < kSpins + kYields ? 0 : sleep_ns_; }

  void Pause() {
    if (round_ < kSpins) {
      ++round_;
      return;
    }
    if (round_ < kSpins + kYields) {
      ++round_;
      sched_yield();
      return;
    }
    const timespec t{0, sleep_ns_};
    nanosleep(&t, nullptr);
    Lengthen();
  }

  // For callers that sleep by other means (a condition variable) for next_sleep_ns().
  void Lengthen() { sleep_ns_ = sleep_ns_ * 2 < max_sleep_ns_ ? sleep_ns_ * 2 : max_sleep_ns_; }

 private:
  static constexpr int kSpins = 64;
  static constexpr int kYields = 256;
  static constexpr long kFirstSleepNs = 5000;

  const long max_sleep_ns_;
  const Start start_;
  int round_;
  long sleep_ns_;
};

}  // namespace tfhvd
