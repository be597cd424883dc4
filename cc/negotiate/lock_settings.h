// LockSettings: with which settings the coordinator locks a step: those of the job, or, where they
// are to be found while it runs, those that the tuner wants to try next (tune/tuner.h).
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/flow/step_settings.h"
#include "cc/negotiate/cache_ids.h"
#include "cc/schedule/step_detector.h"
#include "cc/tune/tuner.h"

namespace tfhvd {

class LockSettings {
 public:
  struct Options {
    StepSettings given;
    bool autotune = false;
    Tuner::Remembered remembered;
    uint64_t machine = 0;  // what is found for a step is remembered for such machines
  };

  explicit LockSettings(Options options);

  // For the step that the detector has found to repeat, and that is locked with them. `ids` knows
  // its collectives.
  StepTuner::Block Next(const StepDetector& detector, const CacheIds& ids);

  // That has ended; see Tuner.
  void Ended(bool late, double step_seconds) {
    if (tuner_.has_value()) tuner_->Ended(late, step_seconds);
  }

  std::vector<Tuner::News> TakeNews();

 private:
  StepId IdOf(const std::vector<StepItem>& step, const CacheIds& ids) const;

  const StepSettings given_;
  const uint64_t machine_;
  std::optional<Tuner> tuner_;  // none: nothing is to be found
};

}  // namespace tfhvd
