// StepPeriods: how long a step takes while it is locked, from the end of one to the end of the
// next. The first steps of a lock are left out: they find memory and other ranks as something else
// left them. A pure function of what it has seen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tfhvd {

class StepPeriods {
 public:
  // Those that are left out: the first has no beginning.
  static constexpr int64_t kFirst = 3;
  // Fewer say nothing.
  static constexpr size_t kFewest = 5;
  // More are not kept.
  static constexpr size_t kMost = 512;

  // A step is locked.
  void Begin() {
    ran_ = 0;
    periods_.clear();
  }

  // A step has run, by `now`, in seconds.
  void StepRan(double now) {
    if (++ran_ > kFirst && periods_.size() < kMost) periods_.push_back(now - last_);
    last_ = now;
  }

  // The mean of those that are neither among the shortest nor among the longest quarter, in
  // seconds; 0 where there are too few.
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
