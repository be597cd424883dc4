// SubmissionQueue: the only structure that framework threads touch. They push entries,
// cancellations and the wish to leave; whoever runs the engine drains them. While a step is locked,
// its entries go to their positions in the step and are taken out a bucket at a time.
//
// Any thread may call Push, Cancel, Leave, Close and closed; the rest is for who runs the engine.
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
    std::vector<Entry> entries;      // in order of submission; of a locked step: none
    std::vector<Entry> twice;        // of a locked step: those whose name is in flight already
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

  // What of a locked step is here.
  struct Collected {
    size_t waiting = 0;  // entries
    int64_t taken = 0;   // how many have come so far, those that have gone on since among them
  };

  // `wake` is called, without a lock held, by threads that cancel or leave, and by the one that
  // pushes the entry that the engine sleeps for (see Arm); where that one completes a bucket,
  // `complete` is called in its place.
  explicit SubmissionQueue(std::function<void()> wake, std::function<void()> complete = nullptr)
      : wake_(std::move(wake)), complete_(complete ? std::move(complete) : wake_) {}

  // Is told of each entry as it is submitted; not owned. To be called before the first Push.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Takes the entry and gives it an id; once closed, leaves the entry alone and returns `why` of
  // Close, and kCancelled where it has been withdrawn.
  Status Push(Entry* entry, EntryId* id) TFHVD_EXCLUDES(mutex_);
  void Cancel(EntryId id) TFHVD_EXCLUDES(mutex_);

  // The first call counts.
  void Leave(const std::string& reason) TFHVD_EXCLUDES(mutex_);

  // Nothing is taken after this. What was taken before can still be drained. The first call counts.
  void Close(const Status& why) TFHVD_EXCLUDES(mutex_);
  Status closed() const TFHVD_EXCLUDES(mutex_);

  // Swaps everything that has come into `batch`, but for what is in the positions of a locked step;
  // what `batch` held is dropped.
  void Drain(Batch* batch) TFHVD_EXCLUDES(mutex_);

  // How many entries are there to be drained.
  size_t size() const TFHVD_EXCLUDES(mutex_);

  // The engine is about to sleep: the next entry wakes it, but while a step is locked only one that
  // the step has not, and with `for_bucket` one that completes the next bucket. False: it is there.
  bool Arm(bool for_bucket) TFHVD_EXCLUDES(mutex_);

  // From here on the entries of `step` go to their positions: first those of `pending`, in order of
  // submission, then those that are here. What of `pending` the step has not stays in there.
  void Lock(std::shared_ptr<const LockedStep> step, std::vector<Entry>* pending)
      TFHVD_EXCLUDES(mutex_);
  Collected collected() const TFHVD_EXCLUDES(mutex_);
  // Moves the next bucket to the end of `bucket` if it is complete; whether it was.
  bool TakeBucket(std::vector<Agreed>* bucket) TFHVD_EXCLUDES(mutex_);
  // The bucket that was taken last is decided: it runs.
  void BucketRuns() TFHVD_EXCLUDES(mutex_);
  // Moves all that is in positions to the end of `entries`. No step is locked any more.
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
