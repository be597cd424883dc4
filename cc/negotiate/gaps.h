// Gaps: how long the entries of a step let each other wait, of late. What a slow moment (a
// compilation, a page that was swapped out) has shown is forgotten again; what comes with every
// step, or with every few hundred, is not. A pure function of what it has seen.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tfhvd {

class Gaps {
 public:
  static constexpr int64_t kSteps = 1000;

  void Saw(double seconds) { recent_ = std::max(recent_, seconds); }

  // A step has run.
  void StepRan() {
    if (++steps_ < kSteps) return;
    steps_ = 0;
    before_ = recent_;
    recent_ = 0.0;
  }

  // The longest one of the last kSteps steps, and of at most as many before them; in seconds.
  double longest() const { return std::max(recent_, before_); }

 private:
  double recent_ = 0.0;  // in the last steps_ steps
  double before_ = 0.0;  // in the kSteps before those
  int64_t steps_ = 0;
};

}  // namespace tfhvd
