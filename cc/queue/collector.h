// Collector: puts the entries of a locked step into their positions as they are submitted, and
// returns each complete bucket, in the order of the step.
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
    kTaken,    // the entry was moved into its position, or behind the entry in that position
    kTwice,    // an entry of this name is in flight, and the two are not both anonymous
    kForeign,  // the step has no such collective
  };

  // REQUIRES: not active.
  void Begin(std::shared_ptr<const LockedStep> step);
  bool active() const { return step_ != nullptr; }

  // Moves the entry to its position if Fit is kTaken, otherwise leaves it unchanged. REQUIRES:
  // active.
  Fit Take(Entry* entry);

  // Returns whether all entries of the next bucket are here.
  bool complete() const { return active() && missing_[next_] == 0; }
  // Moves the entries of the next bucket, with the decisions on them, to the end of `bucket`; the
  // bucket after it becomes the next. REQUIRES: complete().
  void TakeBucket(std::vector<Agreed>* bucket);
  // Records that the last bucket of TakeBucket runs: its names may be used again. Until then they
  // are in flight.
  void BucketRuns() { in_flight_ = -1; }

  // Moves all entries to the end of `entries`, in no order. The collector is no longer active.
  void End(std::vector<Entry>* entries);

  // Return how many entries are here, and how many were ever taken.
  size_t size() const { return size_; }
  int64_t taken() const { return taken_; }

 private:
  struct Slot {
    Entry entry;
    bool filled = false;
    // The request object of the last match; held, so that no other one gets its address.
    SharedRequest request;
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
  // Further anonymous entries, by position; mostly empty.
  std::unordered_map<int, std::deque<Entry>> behind_;
  std::vector<int> missing_;  // by bucket
  size_t next_ = 0;           // the bucket that TakeBucket returns next
  int found_ = -1;            // the position of the last entry
  int in_flight_ = -1;        // the last bucket of TakeBucket, until it runs
  size_t size_ = 0;
  int64_t taken_ = 0;
};

}  // namespace tfhvd
