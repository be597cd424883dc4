// LockSettings: the settings with which the coordinator locks a step: those of the job; or, if the
// job is tuned while it runs, those that the tuner wants to try next (tune/tuner.h).
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
    uint64_t machine = 0;  // tuning results are remembered for such machines
  };

  explicit LockSettings(Options options);

  // Returns the settings for the step that the detector has found to repeat, and that is locked
  // with them. `ids` knows its collectives.
  StepTuner::Block Next(const StepDetector& detector, const CacheIds& ids);

  // Records that the step has ended; see Tuner.
  void Ended(bool late, double step_seconds) {
    if (tuner_.has_value()) tuner_->Ended(late, step_seconds);
  }

  std::vector<Tuner::News> TakeNews();

 private:
  StepId IdOf(const std::vector<StepItem>& step, const CacheIds& ids) const;

  const StepSettings given_;
  const uint64_t machine_;
  std::optional<Tuner> tuner_;  // none: no tuning
};

}  // namespace tfhvd
