// StepWatch: notices that a program repeats its step, and cuts the step into the buckets of a
// schedule. A step is a run of agreed collectives of which none comes twice. A pure function of
// what it has seen; rank 0's coordinator feeds it.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "cc/flow/messages.h"

namespace tfhvd {

class StepWatch {
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

  // Something was agreed that is no plain repeat: counting begins anew.
  void Disturbed();

  // Whether the last step was complete and equal to enough of those before it.
  bool Repeats() const { return current_.empty() && repeats_ >= needed_; }

  // The step in buckets, in the order of the last time.
  //
  // A rank may wait for one collective's result before it submits another, and the two must not
  // share a bucket. That they are independent is certain where every rank announced the second
  // without having seen the first's agreement. Reductions are taken to be independent all the same,
  // as long as no schedule has proved otherwise.
  std::vector<Bucket> Schedule() const;

  // A schedule has ended after so many turns; `late`: a bucket did not fill. One that hardly
  // paid makes the watch more patient before the next; one that paid, and something else came in
  // between, is worth beginning again as soon as its step has come once.
  void Ended(int64_t turns, bool late);

 private:
  bool Is(const std::unordered_set<CacheId>& ids) const;

  std::vector<Item> current_;  // the step under way
  std::unordered_set<CacheId> current_ids_;
  std::vector<Item> last_;  // the last whole step
  std::unordered_set<CacheId> last_ids_;
  std::unordered_set<CacheId> proven_;  // of the last schedule, if it paid
  int64_t repeats_ = 0;                 // whole steps, equal to `last_`
  int64_t needed_ = kLeastRepeats;
  bool trusting_ = true;

  static constexpr int64_t kLeastRepeats = 3;
};

}  // namespace tfhvd
