// KnownSteps: the steps that were locked before. It remembers how well the schedule of each paid,
// and notices when one that paid comes again: training continues after an epoch's metrics, or after
// an evaluation that had its own schedule. A pure function of its input; part of StepDetector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/schedule/step_cut.h"

namespace tfhvd {

// How a step was cut into buckets: trusting that its reductions are independent (trust.h), doubting
// it, or in the one way that follows from both.
enum class CutWith { kEither, kTrust, kDoubt };

class KnownSteps {
 public:
  using Ids = std::unordered_set<CacheId>;

  // Must be called when collective `id` was agreed on and no step is locked; with kNoId for a
  // collective that no schedule can contain.
  void Saw(CacheId id);

  // Returns whether the last collective has completed a known step. A step resumes if its schedule
  // paid and ended between two steps, once all its collectives, and no others, have been agreed on.
  bool resumed() const { return resumed_; }

  // Returns how often in a row a step of these collectives must come before it is locked: more
  // often each time that its schedule hardly paid.
  int64_t Needed(const Ids& ids) const;

  // Must be called when a step is locked: the resumed one, if there is one.
  void Locked(const std::vector<StepItem>& items, std::vector<Bucket> buckets, CutWith with);
  // The step that was locked last, or has resumed since. REQUIRES: there is one.
  const std::vector<StepItem>& items() const { return steps_.back().items; }
  const std::vector<Bucket>& locked() const { return steps_.back().buckets; }
  CutWith locked_with() const { return steps_.back().with; }

  // Must be called when the last schedule has ended after `rounds` rounds. `late`: a bucket did not
  // fill.
  void Ended(int64_t rounds, bool late);

  // Must be called when reductions are trusted again: a step that was cut in doubt then does not
  // resume, so that it is cut again.
  void ForgetDoubts();

 private:
  struct Step {
    Ids ids;
    std::vector<StepItem> items;
    std::vector<Bucket> buckets;
    CutWith with = CutWith::kEither;
    int64_t needed = kLeastRepeats;
    bool resumable = false;
    Ids awaited;  // if resumable: the collectives that have not come yet
  };

  static void Await(CacheId id, Step* step);

  std::vector<Step> steps_;  // few; ends with the step that was locked last
  bool resumed_ = false;     // the last step of steps_ has resumed

  static constexpr int64_t kLeastRepeats = 3;
};

}  // namespace tfhvd
