#include "cc/queue/submission_queue.h"

#include <algorithm>
#include <utility>

namespace tfhvd {

Status SubmissionQueue::Push(Entry* entry, EntryId* id) {
  bool enough;
  {
    const MutexLock lock(&mutex_);
    if (!closed_.ok()) return closed_;
    *id = entry->id = next_id_++;
    Mark(entry);
    const size_t count = batch_.entries.size() + 1;
    if (or_unexpected_ && count < wake_at_ && entry->schedule == 0) wake_at_ = count;
    enough = count == wake_at_;
    batch_.entries.push_back(std::move(*entry));
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

void SubmissionQueue::Expect(ScheduledRequests expected) {
  const MutexLock lock(&mutex_);
  std::swap(expected_, expected);
  indices_.clear();
  for (size_t index = 0; index < expected_.requests.size(); ++index) {
    indices_[expected_.requests[index].get()] = static_cast<int>(index);
  }
  for (Entry& entry : batch_.entries) Mark(&entry);
}

void SubmissionQueue::Mark(Entry* entry) {
  const auto index = indices_.find(entry->request.get());
  const bool expected = index != indices_.end();
  entry->schedule = expected ? expected_.schedule : 0;
  entry->index = expected ? index->second : 0;
}

bool SubmissionQueue::WakeAt(size_t count, bool or_unexpected) {
  const MutexLock lock(&mutex_);
  wake_at_ = count;
  or_unexpected_ = or_unexpected;
  if (batch_.entries.size() >= count) return false;
  if (!or_unexpected) return true;
  return std::all_of(batch_.entries.begin(), batch_.entries.end(),
                     [](const Entry& entry) { return entry.schedule != 0; });
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
