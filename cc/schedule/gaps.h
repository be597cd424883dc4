// Gaps: the longest time between two entries of a step, in recent steps. A single long gap (a
// compilation, a page that was swapped out) is forgotten after some steps; a gap that recurs within
// as many steps is not. A pure function of its input.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tfhvd {

class Gaps {
 public:
  static constexpr int64_t kSteps = 1000;

  // Records that entries came at `now`, in seconds. `first`: none was pending, so that the time
  // since the last ones is no gap.
  void Came(double now, bool first) {
    if (!first) recent_ = std::max(recent_, now - last_);
    last_ = now;
  }
  // Records that a bucket ran: the next gap begins here.
  void BucketRan(double now) { last_ = now; }

  // Must be called after each step.
  void StepRan() {
    if (++steps_ < kSteps) return;
    steps_ = 0;
    before_ = recent_;
    recent_ = 0.0;
  }

  // Returns the longest gap, in seconds, of at least the last kSteps steps and at most twice as
  // many.
  double longest() const { return std::max(recent_, before_); }

  // Returns when entries came last, or a bucket ran.
  double last() const { return last_; }

 private:
  double recent_ = 0.0;  // in the last steps_ steps
  double before_ = 0.0;  // in the kSteps before those
  double last_ = 0.0;
  int64_t steps_ = 0;
};

}  // namespace tfhvd
