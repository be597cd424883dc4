// StepDetector: notices that a program repeats its step, and cuts the step into the buckets of a
// schedule. A step is a run of agreed collectives of which none comes twice. A pure function of
// what it has seen; rank 0's coordinator feeds it.
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

  // `across_hosts`: whether the job has several, for which steps are cut otherwise.
  explicit StepDetector(bool across_hosts = false) : across_hosts_(across_hosts) {}

  void Saw(const Item& item);

  // To be called when something was agreed on that is no plain repeat: counting begins anew.
  void Disturbed();

  // Whether the last step was complete and equal to enough of those before it, and none is locked.
  bool Repeats() const;

  // The collectives of the step that is to be locked. REQUIRES, here and of what follows:
  // Repeats().
  const std::vector<Item>& step() const { return known_.resumed() ? known_.items() : last_; }

  // That step in buckets of so many bytes (step_cut.h), in the order of the last time. Reductions
  // are trusted to be independent, unless a schedule has raised doubts of late (trust.h); of a step
  // that has resumed, as when it was locked.
  std::vector<Bucket> Schedule(int64_t bucket_bytes = StepSettings().bucket_bytes) const;

  // What Schedule says is locked from here on, and nothing is seen of it until Ended. It is to end
  // after so many steps; 0: nobody has said.
  const std::vector<Bucket>& Lock(int64_t bucket_bytes = StepSettings().bucket_bytes,
                                  int64_t steps = 0);

  // After how many rounds the schedule that was locked last is to end: because it was locked for so
  // many steps, or its step can then be cut into fewer buckets; 0: neither.
  int64_t term() const { return term_; }

  // What was locked has ended after so many rounds; `late`: a bucket did not fill. One that hardly
  // paid must come more often before it is locked again; one that paid, and ended between two steps
  // because something else came, is locked as soon as its step has come once.
  void Ended(int64_t rounds, bool late);

 private:
  void Count(const Item& item);
  void CountAnew();
  bool Trusting() const;
  std::vector<Bucket> Cut(bool trusting, int64_t bucket_bytes) const {
    return CutStep(step(), trusting, bucket_bytes, across_hosts_);
  }

  const bool across_hosts_;
  std::vector<Item> current_;  // the step under way
  KnownSteps::Ids current_ids_;
  std::vector<Item> last_;  // the last whole step
  KnownSteps::Ids last_ids_;
  int64_t repeats_ = 0;  // whole steps, equal to `last_`
  KnownSteps known_;

  Trust trust_;
  int64_t term_ = 0;

  bool is_locked_ = false;
  // What is left of the step in which a schedule ended: a count must not begin in its midst.
  KnownSteps::Ids rest_;
};

}  // namespace tfhvd
