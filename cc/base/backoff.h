// Backoff: how a thread waits for an event that does not wake it (in a vendor's library that must
// be polled). It spins briefly, then yields, then sleeps, so that a waiting rank leaves the core to
// the computation. Not thread-safe: one object per waiting thread.
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

  // Records that the event has come. The next wait spins and yields half as often if this one
  // lasted until it slept, and twice as often if it waited but did not sleep.
  void Found() {
    if (round_ >= rounds_) {
      rounds_ = rounds_ / 2 > kLeastRounds ? rounds_ / 2 : kLeastRounds;
    } else if (round_ > 0) {
      rounds_ = rounds_ * 2 < kMostRounds ? rounds_ * 2 : kMostRounds;
    }
    Reset();
  }

  // Returns how long Pause would sleep next: 0 while it still spins or yields.
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
  static constexpr int kMostRounds = 320;  // number of times to spin and yield
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
