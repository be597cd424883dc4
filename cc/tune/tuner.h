// Tuner: which settings each step that repeats runs with next, while they are being found. A job
// has few such steps (training, evaluation); each has a tuner of its own (step_tuner.h).
//
// Rank 0's coordinator asks it whenever it locks a step. It reads no clock and no file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cc/flow/step_settings.h"
#include "cc/tune/step_tuner.h"

namespace tfhvd {

// What a step is known by, from job to job.
using StepId = uint64_t;

class Tuner {
 public:
  using Remembered = std::map<StepId, StepSettings>;

  struct News {
    StepId step = 0;
    StepTuner::News what;
  };

  // As for StepTuner.
  Tuner(const StepSettings& given, Remembered remembered)
      : given_(given), remembered_(std::move(remembered)) {}

  // What `step`, which is locked now, is to run next, until Ended.
  StepTuner::Block Next(StepId step, const StepTuner::OutcomeOf& outcome_of);
  // That has ended. REQUIRES: Next was called.
  void Ended(bool late, double step_seconds) { running_->second.Ended(late, step_seconds); }

  // What has been decided since the last call.
  std::vector<News> TakeNews();

 private:
  using Steps = std::map<StepId, StepTuner>;

  const StepSettings given_;
  const Remembered remembered_;
  Steps steps_;  // at most kMostSteps
  Steps::iterator running_;
};

}  // namespace tfhvd
