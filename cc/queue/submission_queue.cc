#include "cc/queue/submission_queue.h"

#include <utility>

namespace tfhvd {

Status SubmissionQueue::Push(Entry* entry, EntryId* id) {
  MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  *id = entry->id = next_id_++;
  batch_.entries.push_back(std::move(*entry));
  if (waiting_) changed_.NotifyOne();
  return Status::Ok();
}

void SubmissionQueue::Cancel(EntryId id) {
  MutexLock lock(&mutex_);
  batch_.cancelled.push_back(id);
  if (waiting_) changed_.NotifyOne();
}

void SubmissionQueue::Leave(const std::string& reason) {
  MutexLock lock(&mutex_);
  if (left_) return;
  left_ = true;
  batch_.leaving = true;
  batch_.leave_reason = reason;
  if (waiting_) changed_.NotifyOne();
}

void SubmissionQueue::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  if (waiting_) changed_.NotifyOne();
}

void SubmissionQueue::Close(const Status& why) {
  MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = why;
}

Status SubmissionQueue::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

void SubmissionQueue::Drain(Batch* batch) {
  *batch = Batch();
  MutexLock lock(&mutex_);
  std::swap(*batch, batch_);
}

void SubmissionQueue::WaitFor(std::chrono::nanoseconds timeout) {
  MutexLock lock(&mutex_);
  if (batch_.empty() && !woken_) {
    waiting_ = true;
    changed_.WaitFor(&mutex_, timeout);
    waiting_ = false;
  }
  woken_ = false;
}

}  // namespace tfhvd
