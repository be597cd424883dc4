// Tuner: chooses the settings that each repeating step runs with next, while better ones are
// searched. A job has few such steps (training, evaluation), and each has its own StepTuner
// (step_tuner.h).
//
// Rank 0's coordinator calls it whenever it locks a step. It reads no clock and no file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cc/flow/step_settings.h"
#include "cc/tune/step_tuner.h"

namespace tfhvd {

// Identifies a step, also in later jobs.
using StepId = uint64_t;

class Tuner {
 public:
  using Remembered = std::map<StepId, StepSettings>;

  struct News {
    StepId step = 0;
    StepTuner::News what;
  };

  // See StepTuner.
  Tuner(const StepSettings& given, Remembered remembered)
      : given_(given), remembered_(std::move(remembered)) {}

  // Returns the block that `step`, which is locked now, runs next, until Ended.
  StepTuner::Block Next(StepId step, const StepTuner::OutcomeOf& outcome_of);
  // Records the end of that block. REQUIRES: Next was called.
  void Ended(bool late, double step_seconds) { running_->second.Ended(late, step_seconds); }

  // Returns the decisions since the last call.
  std::vector<News> TakeNews();

 private:
  using Steps = std::map<StepId, StepTuner>;

  const StepSettings given_;
  const Remembered remembered_;
  Steps steps_;  // at most kMostSteps
  Steps::iterator running_;
};

}  // namespace tfhvd
