// StepDetector: notices that a program repeats its step, and cuts the step into the buckets of a
// schedule. A step is a run of agreed collectives of which none comes twice. A pure function of
// what it has seen; rank 0's coordinator feeds it.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/negotiate/known_steps.h"
#include "cc/negotiate/trust.h"

namespace tfhvd {

class StepDetector {
 public:
  // One agreed collective that all ranks knew by its number.
  struct Item {
    CacheId id = kNoId;
    int64_t bytes = 0;
    uint64_t agreed_at = 0;  // the agreement's sequence number
    uint64_t known_before =
        0;                 // the last agreement that some rank had taken when it announced this
    bool fusible = false;  // a reduction: nothing usually waits for one before the next
  };

  void Saw(const Item& item);

  // To be called when something was agreed on that is no plain repeat: counting begins anew.
  void Disturbed();

  // Whether the last step was complete and equal to enough of those before it, and none is locked.
  bool Repeats() const;

  // The step in buckets, in the order of the last time; a step that has resumed: as it was locked.
  //
  // A rank may wait for one collective's result before it submits another, and the two must not
  // share a bucket. That they are independent is certain where every rank announced the second
  // without having seen the first's agreement. Reductions are taken to be independent all the same,
  // unless a schedule has raised doubts of late (trust.h). REQUIRES: Repeats().
  std::vector<Bucket> Schedule() const;

  // What Schedule() says is locked from here on, and nothing is seen of it until Ended. REQUIRES:
  // Repeats().
  const std::vector<Bucket>& Lock();

  // After how many rounds the schedule that was locked last should end, because its step can then
  // be cut into fewer buckets; 0 where it cannot.
  int64_t term() const { return term_; }

  // What was locked has ended after so many rounds; `late`: a bucket did not fill. One that hardly
  // paid must come more often before it is locked again; one that paid, and ended between two steps
  // because something else came, is locked as soon as its step has come once.
  void Ended(int64_t rounds, bool late);

 private:
  void Count(const Item& item);
  void CountAnew();
  std::vector<Bucket> Cut(bool trusting) const;

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
