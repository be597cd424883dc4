#include "cc/queue/submission_queue.h"

#include <utility>

namespace tfhvd {

Status SubmissionQueue::Push(Entry* entry, EntryId* id) {
  const std::function<void()>* tell = nullptr;
  {
    const MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    Withdrawal* const withdrawal = std::exchange(entry->withdrawal, nullptr);
    const EntryId next = next_id_++;
    if (withdrawal != nullptr && !withdrawal->Take(next)) return WasWithdrawn();
    *id = entry->id = next;
    if (observer_ != nullptr && observer_->on()) observer_->Submitted(*entry);
    const bool collected = Collect(entry);
    if (armed_ && (!collected || (for_bucket_ && collector_.complete()))) {
      armed_ = false;
      tell = collected ? &complete_ : &wake_;
    }
  }
  if (tell != nullptr) (*tell)();
  return Status::Ok();
}

// Returns whether the entry went to a position of a locked step. After an entry of another kind
// none does until the queue is drained: no bucket that is complete later may overtake that entry.
bool SubmissionQueue::Collect(Entry* entry) {
  if (collector_.active() && batch_.entries.empty()) {
    const Collector::Fit fit = collector_.Take(entry);
    if (fit == Collector::Fit::kTaken) return true;
    if (fit == Collector::Fit::kTwice) {
      batch_.twice.push_back(std::move(*entry));
      return false;
    }
  }
  batch_.entries.push_back(std::move(*entry));
  return false;
}

void SubmissionQueue::Cancel(EntryId id) {
  {
    const MutexLock lock(&mutex_);
    batch_.cancelled.push_back(id);
  }
  wake_();
}

void SubmissionQueue::Leave(const std::string& reason) {
  {
    const MutexLock lock(&mutex_);
    if (left_) return;
    left_ = true;
    batch_.leaving = true;
    batch_.leave_reason = reason;
  }
  wake_();
}

void SubmissionQueue::Close(const Status& why) {
  const MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = why;
}

Status SubmissionQueue::closed() const {
  const MutexLock lock(&mutex_);
  return closed_;
}

void SubmissionQueue::Drain(Batch* batch) {
  batch->Clear();
  const MutexLock lock(&mutex_);
  std::swap(*batch, batch_);
}

size_t SubmissionQueue::size() const {
  const MutexLock lock(&mutex_);
  return batch_.entries.size();
}

bool SubmissionQueue::Arm(bool for_bucket) {
  const MutexLock lock(&mutex_);
  for_bucket_ = for_bucket;
  const bool there = !batch_.entries.empty() || !batch_.twice.empty();
  armed_ = !there && !(for_bucket && collector_.complete());
  return armed_;
}

void SubmissionQueue::Lock(std::shared_ptr<const LockedStep> step, std::vector<Entry>* pending) {
  const MutexLock lock(&mutex_);
  collector_.Begin(std::move(step));
  std::vector<Entry> foreign;
  for (Entry& entry : *pending) {
    if (!foreign.empty() || collector_.Take(&entry) != Collector::Fit::kTaken) {
      foreign.push_back(std::move(entry));
    }
  }
  std::swap(*pending, foreign);
  std::vector<Entry> here;
  std::swap(here, batch_.entries);
  for (Entry& entry : here) (void)Collect(&entry);
}

SubmissionQueue::Collected SubmissionQueue::collected() const {
  const MutexLock lock(&mutex_);
  return {collector_.size(), collector_.taken()};
}

bool SubmissionQueue::TakeBucket(std::vector<Agreed>* bucket) {
  const MutexLock lock(&mutex_);
  if (!collector_.complete()) return false;
  collector_.TakeBucket(bucket);
  return true;
}

void SubmissionQueue::BucketRuns() {
  const MutexLock lock(&mutex_);
  collector_.BucketRuns();
}

void SubmissionQueue::Unlock(std::vector<Entry>* entries) {
  const MutexLock lock(&mutex_);
  if (collector_.active()) collector_.End(entries);
}

}  // namespace tfhvd
