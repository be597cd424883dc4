// StepPeriods: the duration of a step while it is locked, from the end of one step to the end of
// the next. Leaves out the first steps of a lock, which find memory and other ranks in the state of
// earlier work. A pure function of its input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tfhvd {

class StepPeriods {
 public:
  // Steps that are left out: the first one has no beginning.
  static constexpr int64_t kFirst = 3;
  // With fewer periods there is no result.
  static constexpr size_t kFewest = 5;
  // More periods are not kept.
  static constexpr size_t kMost = 512;

  // Records that a step is locked.
  void Begin() {
    ran_ = 0;
    periods_.clear();
  }

  // Records that a step ended at `now`, in seconds.
  void StepRan(double now) {
    if (++ran_ > kFirst && periods_.size() < kMost) periods_.push_back(now - last_);
    last_ = now;
  }

  // Returns the mean period, in seconds, without the shortest quarter and the longest quarter; 0 if
  // there are too few.
  double typical() const {
    if (periods_.size() < kFewest) return 0.0;
    std::vector<double> sorted = periods_;
    std::sort(sorted.begin(), sorted.end());
    const auto quarter = static_cast<std::ptrdiff_t>(sorted.size() / 4);
    const double sum = std::accumulate(sorted.begin() + quarter, sorted.end() - quarter, 0.0);
    return sum / static_cast<double>(static_cast<std::ptrdiff_t>(sorted.size()) - 2 * quarter);
  }

 private:
  std::vector<double> periods_;
  double last_ = 0.0;
  int64_t ran_ = 0;
};

}  // namespace tfhvd
