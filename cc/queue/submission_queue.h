// SubmissionQueue: the only structure that framework threads touch. They push entries,
// cancellations and the wish to leave; the thread that runs the engine drains them. While a step is
// locked, its entries go to their positions in the step and are taken out bucket by bucket.
//
// Any thread may call Push, Cancel, Leave, Close and closed; only the thread that runs the engine
// calls the rest.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/flow/entry.h"
#include "cc/flow/locked_step.h"
#include "cc/flow/observer.h"
#include "cc/flow/plan.h"
#include "cc/queue/collector.h"

namespace tfhvd {

class SubmissionQueue {
 public:
  struct Batch {
    std::vector<Entry> entries;      // in order of submission; without those of a locked step
    std::vector<Entry> twice;        // entries of a locked step whose name is in flight already
    std::vector<EntryId> cancelled;  // entries of this or of earlier batches
    bool leaving = false;
    std::string leave_reason;

    bool empty() const { return entries.empty() && twice.empty() && cancelled.empty() && !leaving; }
    // Keeps the memory of the lists.
    void Clear() {
      entries.clear();
      twice.clear();
      cancelled.clear();
      leaving = false;
      leave_reason.clear();
    }
  };

  // The entries of a locked step that are here.
  struct Collected {
    size_t waiting = 0;  // number of entries in positions
    int64_t taken = 0;   // number of entries that were ever taken, including those of past buckets
  };

  // `wake` is called, without a lock held, by threads that cancel or leave, and by the thread that
  // pushes the entry that the engine sleeps for (see Arm). If that entry completes a bucket,
  // `complete` is called instead.
  explicit SubmissionQueue(std::function<void()> wake, std::function<void()> complete = nullptr)
      : wake_(std::move(wake)), complete_(complete ? std::move(complete) : wake_) {}

  // The observer learns of each entry when it is submitted; not owned. Must be called before the
  // first Push.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Takes the entry and gives it an id. Once closed, leaves the entry unchanged and returns the
  // `why` of Close. Returns kCancelled if the entry has been withdrawn.
  Status Push(Entry* entry, EntryId* id) TFHVD_EXCLUDES(mutex_);
  void Cancel(EntryId id) TFHVD_EXCLUDES(mutex_);

  // Only the first call has an effect.
  void Leave(const std::string& reason) TFHVD_EXCLUDES(mutex_);

  // Takes nothing more. Earlier entries can still be drained. Only the first call has an effect.
  void Close(const Status& why) TFHVD_EXCLUDES(mutex_);
  Status closed() const TFHVD_EXCLUDES(mutex_);

  // Swaps everything that has arrived into `batch`, except the entries in positions of a locked
  // step; drops the old content of `batch`.
  void Drain(Batch* batch) TFHVD_EXCLUDES(mutex_);

  // Returns how many entries can be drained.
  size_t size() const TFHVD_EXCLUDES(mutex_);

  // Prepares for the engine's sleep: the next entry wakes it. While a step is locked, only an entry
  // outside the step does, and with `for_bucket` also one that completes the next bucket. Returns
  // false if there is such an entry already.
  bool Arm(bool for_bucket) TFHVD_EXCLUDES(mutex_);

  // From here on the entries of `step` go to their positions: first those of `pending`, in order of
  // submission, then those in the queue. The first entry of `pending` that is not in the step stays
  // there, with all later ones.
  void Lock(std::shared_ptr<const LockedStep> step, std::vector<Entry>* pending)
      TFHVD_EXCLUDES(mutex_);
  Collected collected() const TFHVD_EXCLUDES(mutex_);
  // Moves the next bucket to the end of `bucket` if it is complete; returns whether it was.
  bool TakeBucket(std::vector<Agreed>* bucket) TFHVD_EXCLUDES(mutex_);
  // Records that the last bucket of TakeBucket was decided and runs.
  void BucketRuns() TFHVD_EXCLUDES(mutex_);
  // Moves all entries in positions to the end of `entries`. No step is locked afterwards.
  void Unlock(std::vector<Entry>* entries) TFHVD_EXCLUDES(mutex_);

 private:
  bool Collect(Entry* entry) TFHVD_REQUIRES(mutex_);

  const std::function<void()> wake_;
  const std::function<void()> complete_;
  Observer* observer_ = nullptr;  // Not owned.

  mutable Mutex mutex_;
  Batch batch_ TFHVD_GUARDED_BY(mutex_);
  Collector collector_ TFHVD_GUARDED_BY(mutex_);
  bool armed_ TFHVD_GUARDED_BY(mutex_) = true;
  bool for_bucket_ TFHVD_GUARDED_BY(mutex_) = false;
  EntryId next_id_ TFHVD_GUARDED_BY(mutex_) = 1;
  bool left_ TFHVD_GUARDED_BY(mutex_) = false;
  Status closed_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
