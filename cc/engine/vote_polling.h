// VotePolling: how long a submitting thread that runs the stages polls for votes of other ranks
// before it leaves the bucket to the engine's thread. Waking that thread costs more than all the
// rest. Ranks that run alike vote within a few microseconds, sometimes within a hundred. If votes
// keep coming later, polling is a waste. After the first few polls the thread yields its core,
// above all to a rank that has not voted yet. Used by the thread that runs the engine.
#pragma once

#include <thread>

#include "cc/numeric/cpu.h"

namespace tfhvd {

class VotePolling {
 public:
  // Times are in seconds.
  void Begin(double now) {
    looks_ = 0;
    until_ = now + (missed_ < kMisses ? kLook : kGlance);
  }

  // Waits for a moment after a poll without success; returns false instead if the time is up.
  bool Pause(double now) {
    if (now >= until_) return false;
    if (++looks_ < kLooksAwake) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
    return true;
  }

  // Records whether the votes came in time.
  void Ended(bool came) { missed_ = came ? 0 : missed_ + 1; }

 private:
  static constexpr double kLook = 200e-6;
  static constexpr double kGlance = 30e-6;  // after kMisses rounds without success
  static constexpr int kMisses = 8;
  static constexpr int kLooksAwake = 20;

  int looks_ = 0;
  int missed_ = 0;
  double until_ = 0.0;
};

}  // namespace tfhvd
