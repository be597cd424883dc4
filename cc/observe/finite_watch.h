// FiniteWatch: records in which steps gradients were not finite, and reports on which rank: once,
// because from the next step on the weights of all ranks are affected. It also reports steps in
// which the gradients of one rank were finite but out of all proportion.
//
// It learns of every step after the ranks have reduced their votes (flow/finite_vote.h).
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

  // The sizes of this rank's gradients.
  SizeWatch* sizes() { return &sizes_; }

  // Records that the training has done `step` steps of epoch `epoch` (from 1).
  void At(int64_t epoch, int64_t step) TFHVD_EXCLUDES(mutex_);

  // Records the findings of this rank and of all ranks; the first rank reports what concerns all of
  // them. Returns InvalidArgument, on every rank, if the job must end.
  Status StepOver(const SharedGradients& gradients, const FoundNotFinite& own,
                  const Votes& together, const ProcessSetTable::Members& ranks)
      TFHVD_EXCLUDES(mutex_);

 private:
  struct Steps {
    int64_t count = 0;
    int64_t last = -1;     // the last step that was not finite
    int64_t own = 0;       // steps with gradients of this rank, except consequences
    int64_t outliers = 0;  // steps with an outlier of this rank
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
  std::map<std::string, Steps> steps_ TFHVD_GUARDED_BY(mutex_);  // by the name of the reductions
  int64_t epoch_ TFHVD_GUARDED_BY(mutex_) = 0;                   // 0: unknown
  int64_t step_ TFHVD_GUARDED_BY(mutex_) = 0;
};

}  // namespace tfhvd
