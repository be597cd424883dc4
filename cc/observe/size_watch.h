// SizeWatch: remembers how large this rank's gradients are, for all that reduce gradients here, and
// asks SizeHistory of each step.
//
// To look at all values of all gradients may take long, beside a step that computes little: where
// it would take more than a hundredth of a step, it is at the first kSample values of each.
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

  // Looks at a sample only where the job continues whatever is found.
  explicit SizeWatch(OnOutlier action) : may_sample_(action == OnOutlier::kWarn) {}

  int64_t Most(const std::string& name) override TFHVD_EXCLUDES(mutex_);
  void Add(const std::string& name, const Numbered& some, std::chrono::nanoseconds took) override
      TFHVD_EXCLUDES(mutex_);
  Suspicion Judge(const std::string& name) override TFHVD_EXCLUDES(mutex_);

  // The ranks have voted on the step: whose gradient is an outlier. Others are remembered.
  Accused StepOver(const std::string& name, const Votes& together) TFHVD_EXCLUDES(mutex_);

  // By which factor a gradient is above all that is remembered, as text. REQUIRES: it was judged.
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

  // What a step takes is settled after some, and then measured over some.
  static constexpr int64_t kSettled = 3;
  static constexpr int64_t kMeasured = 8;
  static constexpr int kShare = 100;

  const bool may_sample_;
  Mutex mutex_;
  std::map<std::string, Gradients> all_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
