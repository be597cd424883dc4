// SizeWatch: remembers the sizes of this rank's gradients, for each set of reductions, and asks
// SizeHistory about each step.
//
// Measuring all values of all gradients may take long compared with a step of little computation.
// If it would take more than a hundredth of a step, only the first kSample values of each are
// measured.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/mutex.h"
#include "cc/flow/finite_vote.h"
#include "cc/observe/outliers.h"

namespace tfhvd {

class SizeWatch : public GradientSizes {
 public:
  static constexpr int64_t kSample = 4096;

  // Measures samples only if the job continues after any finding.
  explicit SizeWatch(OnOutlier action) : may_sample_(action == OnOutlier::kWarn) {}

  int64_t Most(const std::string& name) override TFHVD_EXCLUDES(mutex_);
  void Add(const std::string& name, const Numbered& some, std::chrono::nanoseconds took) override
      TFHVD_EXCLUDES(mutex_);
  Suspicion Judge(const std::string& name) override TFHVD_EXCLUDES(mutex_);

  // Records the ranks' vote on the step, and returns whose gradient is an outlier. The sizes of a
  // step without an outlier enter the history.
  Accused StepOver(const std::string& name, const Votes& together) TFHVD_EXCLUDES(mutex_);

  // Returns by which factor a gradient exceeds its usual size, as text. REQUIRES: it was judged.
  std::string Times(const std::string& name, int64_t number) TFHVD_EXCLUDES(mutex_);

 private:
  struct Gradients {
    std::vector<GradientSize> now;  // by their numbers
    SizeHistory history;
    int64_t steps = 0;
    bool sampled = false;
    std::chrono::nanoseconds looked{0};  // since `begin`
    std::chrono::steady_clock::time_point begin;
  };

  // The duration of a step settles after some steps, and is then measured over some.
  static constexpr int64_t kSettled = 3;
  static constexpr int64_t kMeasured = 8;
  static constexpr int kShare = 100;

  const bool may_sample_;
  Mutex mutex_;
  std::map<std::string, Gradients> all_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
