// Trust: whether reductions are taken to be independent of each other, so that they share a bucket
// of a schedule. A schedule that counted on it and had a bucket that did not fill has either shown
// that they are not, or met a slow moment. So it costs trust for some steps only, for twice as many
// each time; and a schedule that served as long as distrust would last makes up for all before. A
// pure function of what it has seen; part of StepWatch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tfhvd {

class Trust {
 public:
  static constexpr int64_t kFewestSteps = 64;
  static constexpr int64_t kMostSteps = 1 << 20;

  bool given() const { return left_ == 0; }

  // How many steps have to be run before it is given again. 0: it is.
  int64_t left() const { return left_; }

  // A schedule has ended after so many steps. `relied`: it would have been another one without
  // trust. `late`: a bucket did not fill.
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
