#include "cc/queue/submission_queue.h"

#include <utility>

namespace tfhvd {

Status SubmissionQueue::Push(Entry* entry, EntryId* id) {
  bool enough;
  {
    const MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    *id = entry->id = next_id_++;
    batch_.entries.push_back(std::move(*entry));
    enough = batch_.entries.size() == wake_at_;
  }
  if (enough) enough_();
  return Status::Ok();
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
  MutexLock lock(&mutex_);
  if (closed_.ok()) closed_ = why;
}

Status SubmissionQueue::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

bool SubmissionQueue::WakeAt(size_t count) {
  const MutexLock lock(&mutex_);
  wake_at_ = count;
  return batch_.entries.size() < count;
}

size_t SubmissionQueue::size() const {
  const MutexLock lock(&mutex_);
  return batch_.entries.size();
}

void SubmissionQueue::Drain(Batch* batch) {
  batch->Clear();
  MutexLock lock(&mutex_);
  std::swap(*batch, batch_);
}

}  // namespace tfhvd
