// Trust: whether the reductions of a step are taken to be independent of each other, so that they
// may share a bucket of a schedule. Where such a bucket does not fill, either the reductions depend
// on each other or a rank was slow for a moment, which cannot be told apart. So reductions are
// distrusted for a number of steps, and for twice as many each time. A schedule that relies on
// trust and serves for as many steps as the next distrust would last sets that number back to the
// smallest.
//
// A pure function of what it has seen; part of StepDetector.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tfhvd {

class Trust {
 public:
  static constexpr int64_t kFewestSteps = 64;
  static constexpr int64_t kMostSteps = 1 << 20;

  bool given() const { return left_ == 0; }

  // How many steps have to run until trust is given again; 0 where it is given.
  int64_t left() const { return left_; }

  // To be called when a schedule has ended after `steps` steps. `relied`: without trust the
  // schedule would have been another one. `late`: one of its buckets did not fill.
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
  int64_t next_ = kFewestSteps;  // how long the next distrust lasts
};

}  // namespace tfhvd
