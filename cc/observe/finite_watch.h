// FiniteWatch: knows in which steps gradients were not finite, and says whose: once, for from the
// step after on the weights of every rank are no better. It says, too, in which steps the gradient
// of one rank was finite, but out of all proportion.
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
#include "cc/flow/process_set_table.h"
#include "cc/observe/size_watch.h"

namespace tfhvd {

class FiniteWatch {
 public:
  FiniteWatch(OnNotFinite action, OnOutlier on_outlier, const Log& log, int rank)
      : action_(action), on_outlier_(on_outlier), log_(log), rank_(rank), sizes_(on_outlier) {}

  // The sizes of this rank's gradients, for who looks at them.
  SizeWatch* sizes() { return &sizes_; }

  // The training has done `step` steps of epoch `epoch` (from 1).
  void At(int64_t epoch, int64_t step) TFHVD_EXCLUDES(mutex_);

  // What this rank has found, and what all ranks have, of whom the first one says what is so of all
  // of them. InvalidArgument, on every rank, where the job is to end with that.
  Status StepOver(const SharedGradients& gradients, const FoundNotFinite& own,
                  const Votes& together, const ProcessSetTable::Members& ranks)
      TFHVD_EXCLUDES(mutex_);

 private:
  struct Steps {
    int64_t count = 0;
    int64_t last = -1;     // which of them was not finite
    int64_t own = 0;       // how many of them for gradients of this rank, but for what follows
    int64_t outliers = 0;  // in how many one of this rank's was out of proportion
  };

  Status OfNotFinite(const SharedGradients& gradients, const FoundNotFinite& own,
                     const Votes& together, bool speaks, Steps* steps, std::string* line)
      TFHVD_REQUIRES(mutex_);
  Status OfOutlier(const SharedGradients& gradients, const Accused& outlier, Steps* steps,
                   std::string* line) TFHVD_REQUIRES(mutex_);
  std::string Consequence(const SharedGradients& gradients) const;
  std::string Place(const std::string& reductions, int64_t number) const TFHVD_REQUIRES(mutex_);

  const OnNotFinite action_;
  const OnOutlier on_outlier_;
  const Log log_;
  const int rank_;
  SizeWatch sizes_;  // provides its own synchronisation
  Mutex mutex_;
  std::map<std::string, Steps> steps_ TFHVD_GUARDED_BY(mutex_);  // by what reduces them
  int64_t epoch_ TFHVD_GUARDED_BY(mutex_) = 0;                   // 0: not known
  int64_t step_ TFHVD_GUARDED_BY(mutex_) = 0;
};

}  // namespace tfhvd
