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
    round_ = start_ == kSpinFirst ? 0 : rounds_;
    sleep_ns_ = kFirstSleepNs;
  }

  // What was waited for has come, and the next wait begins: as waits went on to sleep lately, it
  // spins and yields less, half as often each time; as they did not, twice as often again.
  void Found() {
    if (round_ >= rounds_) {
      rounds_ = rounds_ / 2 > kLeastRounds ? rounds_ / 2 : kLeastRounds;
    } else if (round_ > 0) {
      rounds_ = rounds_ * 2 < kMostRounds ? rounds_ * 2 : kMostRounds;
    }
    Reset();
  }

  // How long Pause would sleep next: 0 while it still spins or yields.
  long next_sleep_ns() const { return round_ < rounds_ ? 0 : sleep_ns_; }

  void Pause() {
    if (round_ < rounds_ / kRoundsToASpin) {
      ++round_;
      return;
    }
    if (round_ < rounds_) {
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
  static constexpr int kMostRounds = 320;  // of spinning and yielding
  static constexpr int kLeastRounds = 10;
  static constexpr int kRoundsToASpin = 5;  // the first fifth of them spins
  static constexpr long kFirstSleepNs = 5000;

  const long max_sleep_ns_;
  const Start start_;
  int rounds_ = kMostRounds;  // before it sleeps
  int round_ = 0;
  long sleep_ns_;
};

}  // namespace tfhvd
