// StepDetector: notices that a program repeats its step, and cuts the step into the buckets of a
// schedule. A step is a run of agreed collectives in which none comes twice. A pure function of its
// input; rank 0's coordinator feeds it.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/flow/step_settings.h"
#include "cc/schedule/known_steps.h"
#include "cc/schedule/step_cut.h"
#include "cc/schedule/trust.h"

namespace tfhvd {

class StepDetector {
 public:
  using Item = StepItem;

  // `across_hosts`: whether the job has several hosts, for which steps are cut differently.
  explicit StepDetector(bool across_hosts = false) : across_hosts_(across_hosts) {}

  void Saw(const Item& item);

  // Must be called when an agreement was no plain repeat: starts the count again.
  void Disturbed();

  // Returns whether the last step was complete and equal to enough earlier ones, and no step is
  // locked.
  bool Repeats() const;

  // Returns the collectives of the step to lock. REQUIRES, here and below: Repeats().
  const std::vector<Item>& step() const { return known_.resumed() ? known_.items() : last_; }

  // Returns that step in buckets of `bucket_bytes` (step_cut.h), in the order of its last run.
  // Reductions are trusted to be independent, unless a recent schedule has raised doubts (trust.h);
  // a resumed step is cut as when it was locked.
  std::vector<Bucket> Schedule(int64_t bucket_bytes = StepSettings().bucket_bytes) const;

  // Locks the result of Schedule and returns it; nothing is seen of the step until Ended. `steps`:
  // the number of steps after which the schedule ends; 0: no limit was given.
  const std::vector<Bucket>& Lock(int64_t bucket_bytes = StepSettings().bucket_bytes,
                                  int64_t steps = 0);

  // Returns after how many rounds the last schedule ends: because it was locked for so many steps,
  // or because the step can then be cut into fewer buckets; 0: neither.
  int64_t term() const { return term_; }

  // Records that the schedule has ended after `rounds` rounds. `late`: a bucket did not fill. A
  // step whose schedule hardly paid must come more often before it is locked again. A step whose
  // schedule paid, and ended between two steps because of another collective, is locked as soon as
  // it has come once.
  void Ended(int64_t rounds, bool late);

 private:
  void Count(const Item& item);
  void CountAnew();
  bool Trusting() const;
  std::vector<Bucket> Cut(bool trusting, int64_t bucket_bytes) const {
    return CutStep(step(), trusting, bucket_bytes, across_hosts_);
  }

  const bool across_hosts_;
  std::vector<Item> current_;  // the present step
  KnownSteps::Ids current_ids_;
  std::vector<Item> last_;  // the last complete step
  KnownSteps::Ids last_ids_;
  int64_t repeats_ = 0;  // complete steps that equal `last_`
  KnownSteps known_;

  Trust trust_;
  int64_t term_ = 0;

  bool is_locked_ = false;
  // The rest of the step in which a schedule ended: a count must not begin in the middle of a step.
  KnownSteps::Ids rest_;
};

}  // namespace tfhvd
