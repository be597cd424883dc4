// KnownSteps: the steps that have been locked before. It remembers of each how well its schedule
// paid, and notices when one that paid comes again: training goes on after an epoch's metrics, or
// after an evaluation that had a schedule of its own. A pure function of what it has seen; part of
// StepDetector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/schedule/step_cut.h"

namespace tfhvd {

// How a step was cut into buckets: with trust in the independence of its reductions (trust.h), in
// doubt of it, or in the one way that both lead to.
enum class CutWith { kEither, kTrust, kDoubt };

class KnownSteps {
 public:
  using Ids = std::unordered_set<CacheId>;

  // To be called when collective `id` was agreed on and no step is locked; with kNoId for a
  // collective that no schedule can have.
  void Saw(CacheId id);

  // Whether what was seen last has completed a known step. One comes again if its schedule paid and
  // ended between two steps, once all of it has been agreed and nothing else in between.
  bool resumed() const { return resumed_; }

  // How often in a row a step of these collectives has to come before it is locked: more often each
  // time that its schedule hardly paid.
  int64_t Needed(const Ids& ids) const;

  // To be called when a step is locked: the one that has resumed, if one has.
  void Locked(const std::vector<StepItem>& items, std::vector<Bucket> buckets, CutWith with);
  // The last one that was locked, or has resumed since. REQUIRES: there is one.
  const std::vector<StepItem>& items() const { return steps_.back().items; }
  const std::vector<Bucket>& locked() const { return steps_.back().buckets; }
  CutWith locked_with() const { return steps_.back().with; }

  // To be called when the schedule that was locked last has ended after `rounds` rounds; `late`: a
  // bucket did not fill.
  void Ended(int64_t rounds, bool late);

  // To be called when reductions are trusted again: a step that was cut in doubt does not resume,
  // so that it is cut anew.
  void ForgetDoubts();

 private:
  struct Step {
    Ids ids;
    std::vector<StepItem> items;
    std::vector<Bucket> buckets;
    CutWith with = CutWith::kEither;
    int64_t needed = kLeastRepeats;
    bool resumable = false;
    Ids awaited;  // what has not come yet, of a resumable one
  };

  static void Await(CacheId id, Step* step);

  std::vector<Step> steps_;  // few; the one that was locked last is the last
  bool resumed_ = false;     // so is the one that has come again

  static constexpr int64_t kLeastRepeats = 3;
};

}  // namespace tfhvd
