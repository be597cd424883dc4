// Collector: puts the entries of a locked step into their positions as they are submitted, and
// hands out each bucket once it is complete, in the order of the step.
//
// Not thread-safe; SubmissionQueue guards it with its lock.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cc/flow/entry.h"
#include "cc/flow/locked_step.h"
#include "cc/flow/plan.h"

namespace tfhvd {

class Collector {
 public:
  enum class Fit {
    kTaken,    // the entry has been moved into its position, or behind the one that is there
    kTwice,    // one of its name is in flight, and the two are not both anonymous
    kForeign,  // the step has no such collective
  };

  // REQUIRES: not active.
  void Begin(std::shared_ptr<const LockedStep> step);
  bool active() const { return step_ != nullptr; }

  // REQUIRES: active. The entry is moved from where it is taken, else left alone.
  Fit Take(Entry* entry);

  // Whether all entries of the next bucket are here.
  bool complete() const { return active() && missing_[next_] == 0; }
  // Moves the next bucket's entries to the end of `bucket`, with what was decided of them; the
  // bucket after it is the next one then. REQUIRES: complete().
  void TakeBucket(std::vector<Agreed>* bucket);
  // The bucket that was taken last runs: its names may be used again. Until then they are in
  // flight.
  void BucketRuns() { in_flight_ = -1; }

  // Moves all entries to the end of `entries`, in no order. Not active any more.
  void End(std::vector<Entry>* entries);

  // How many entries are here, and how many have ever been taken.
  size_t size() const { return size_; }
  int64_t taken() const { return taken_; }

 private:
  struct Slot {
    Entry entry;
    bool filled = false;
    SharedRequest
        request;  // the one by which it was found last; held, so that no other comes to lie there
    int bucket = 0;
  };

  int PositionOf(const Entry& entry);
  int Find(const Entry& entry);
  bool FitsSplits(const Entry& entry, int position) const;
  void Fill(Entry&& entry, int position);

  std::shared_ptr<const LockedStep> step_;
  std::vector<Slot> slots_;  // by position
  std::unordered_map<const Request*, int> by_request_;
  std::unordered_map<Key, int, KeyHash> by_key_;
  std::unordered_map<int, std::deque<Entry>> behind_;  // anonymous ones, by position; seldom any
  std::vector<int> missing_;                           // by bucket
  size_t next_ = 0;                                    // the bucket that is handed out next
  int found_ = -1;                                     // the position that was found last
  int in_flight_ = -1;                                 // the bucket that was, until it runs
  size_t size_ = 0;
  int64_t taken_ = 0;
};

}  // namespace tfhvd
