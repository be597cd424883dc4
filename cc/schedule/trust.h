// Trust: whether the reductions of a step are assumed to be independent of each other, so that they
// may share a bucket of a schedule. If such a bucket does not fill, either the reductions depend on
// each other or a rank was slow for a moment; there is no way to tell which. So reductions are
// distrusted for a number of steps, which doubles each time. A schedule that relies on trust and
// runs for as many steps as the next distrust would last resets that number to the smallest.
//
// A pure function of its input; part of StepDetector.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tfhvd {

class Trust {
 public:
  static constexpr int64_t kFewestSteps = 64;
  static constexpr int64_t kMostSteps = 1 << 20;

  bool given() const { return left_ == 0; }

  // Returns how many steps must run until trust is given again; 0 if it is given.
  int64_t left() const { return left_; }

  // Must be called when a schedule has ended after `steps` steps. `relied`: the schedule would have
  // been different without trust. `late`: one of its buckets did not fill.
  void Ended(int64_t steps, bool relied, bool late) {
    left_ = std::max<int64_t>(0, left_ - steps);
    if (!relied) return;
    if (steps >= next_) next_ = kFewestSteps;
    if (!late) return;
    left_ = next_;
    next_ = std::min(2 * next_, kMostSteps);
  }

 private:
  int64_t left_ = 0;
  int64_t next_ = kFewestSteps;  // the duration of the next distrust, in steps
};

}  // namespace tfhvd
