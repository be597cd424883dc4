// FiniteWatch: knows in which steps gradients were not finite, and says whose: once, for from the
// step after on the weights of every rank are no better.
//
// It is told of every step once the ranks have reduced their votes (flow/finite_vote.h).
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/flow/finite_vote.h"

namespace tfhvd {

class FiniteWatch {
 public:
  FiniteWatch(OnNotFinite action, const Log& log, int rank)
      : action_(action), log_(log), rank_(rank) {}

  // The training has done `step` steps of epoch `epoch` (from 1).
  void At(int64_t epoch, int64_t step) TFHVD_EXCLUDES(mutex_);

  // What this rank has found, and what all ranks have. `speaks`: it says what is so of all of them.
  // InvalidArgument, on every rank, where the job is to end with that.
  Status StepOver(const SharedGradients& gradients, const FoundNotFinite& own,
                  const Votes& together, bool speaks) TFHVD_EXCLUDES(mutex_);

 private:
  struct Steps {
    int64_t count = 0;
    int64_t last = -1;  // which of them was not finite
    int64_t own = 0;    // how many of them for gradients of this rank, but for what follows
  };

  std::string Consequence(const SharedGradients& gradients) const;
  std::string Place(const std::string& reductions, int64_t number) const TFHVD_REQUIRES(mutex_);

  const OnNotFinite action_;
  const Log log_;
  const int rank_;
  Mutex mutex_;
  std::map<std::string, Steps> steps_ TFHVD_GUARDED_BY(mutex_);  // by what reduces them
  int64_t epoch_ TFHVD_GUARDED_BY(mutex_) = 0;                   // 0: not known
  int64_t step_ TFHVD_GUARDED_BY(mutex_) = 0;
};

}  // namespace tfhvd
