// SubmissionQueue: the only structure that framework threads touch. They push entries,
// cancellations and the wish to leave; the engine's thread drains them.
//
// Any thread may call Push, Cancel, Leave and Close; Drain is the engine's.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/flow/entry.h"

namespace tfhvd {

class SubmissionQueue {
 public:
  struct Batch {
    std::vector<Entry> entries;      // in order of submission
    std::vector<EntryId> cancelled;  // entries of this or of earlier batches
    bool leaving = false;
    std::string leave_reason;

    bool empty() const { return entries.empty() && cancelled.empty() && !leaving; }
    // Keeps the memory of the lists.
    void Clear() {
      entries.clear();
      cancelled.clear();
      leaving = false;
      leave_reason.clear();
    }
  };

  // `wake` is called, without a lock held, by the threads that cancel or leave; `enough` by the one
  // that pushes the entry which WakeAt said last (the first one, at first). Without an `enough` of
  // its own that wakes, too.
  explicit SubmissionQueue(std::function<void()> wake, std::function<void()> enough = nullptr)
      : wake_(std::move(wake)), enough_(enough ? std::move(enough) : wake_) {}

  // Takes the entry and gives it an id; once closed, leaves the entry alone and returns `why` of
  // Close.
  Status Push(Entry* entry, EntryId* id) TFHVD_EXCLUDES(mutex_);
  void Cancel(EntryId id) TFHVD_EXCLUDES(mutex_);

  // The first call counts.
  void Leave(const std::string& reason) TFHVD_EXCLUDES(mutex_);

  // Nothing is taken after this. What was taken before can still be drained. The first call counts.
  void Close(const Status& why) TFHVD_EXCLUDES(mutex_);
  Status closed() const TFHVD_EXCLUDES(mutex_);

  // Whose entries are expected, from here on: those of these very requests, not of their like.
  // Entries are marked with the schedule and their index.
  void Expect(ScheduledRequests expected) TFHVD_EXCLUDES(mutex_);

  // Nothing is to be done until `count` entries (at least 1) are there, or, with `or_unexpected`,
  // one that is not expected. False: it is so.
  bool WakeAt(size_t count, bool or_unexpected = false) TFHVD_EXCLUDES(mutex_);

  // How many entries are there to be drained.
  size_t size() const TFHVD_EXCLUDES(mutex_);

  // Swaps everything that has come into `batch`; what that held is dropped.
  void Drain(Batch* batch) TFHVD_EXCLUDES(mutex_);

 private:
  void Mark(Entry* entry) TFHVD_REQUIRES(mutex_);

  const std::function<void()> wake_;
  const std::function<void()> enough_;
  mutable Mutex mutex_;
  Batch batch_ TFHVD_GUARDED_BY(mutex_);
  size_t wake_at_ TFHVD_GUARDED_BY(mutex_) = 1;
  bool or_unexpected_ TFHVD_GUARDED_BY(mutex_) = false;
  // Held, so that no other request comes to lie where an expected one was.
  ScheduledRequests expected_ TFHVD_GUARDED_BY(mutex_);
  std::unordered_map<const Request*, int> indices_ TFHVD_GUARDED_BY(mutex_);  // of those
  EntryId next_id_ TFHVD_GUARDED_BY(mutex_) = 1;
  bool left_ TFHVD_GUARDED_BY(mutex_) = false;
  Status closed_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
