#include "cc/queue/collector.h"

#include <numeric>
#include <utility>

namespace tfhvd {

void Collector::Begin(std::shared_ptr<const LockedStep> step) {
  step_ = std::move(step);
  slots_ = std::vector<Slot>(step_->collectives.size());
  by_request_.clear();
  by_key_.clear();
  missing_.clear();
  for (const LockedStep::Bucket& bucket : step_->buckets) {
    for (int position = bucket.first; position < bucket.first + bucket.count; ++position) {
      Slot& slot = slots_[static_cast<size_t>(position)];
      slot.request = step_->collectives[static_cast<size_t>(position)].request;
      slot.bucket = static_cast<int>(missing_.size());
      by_request_[slot.request.get()] = position;
      by_key_[slot.request->key] = position;
    }
    missing_.push_back(bucket.count);
  }
  next_ = 0;
  found_ = -1;
  in_flight_ = -1;
  size_ = 0;
}

// Returns the position of the entry's collective in the step; -1 if the step has none. A kernel
// submits the same request object every time, so most entries are found without comparing requests,
// and in the same order.
int Collector::PositionOf(const Entry& entry) {
  const int next = found_ + 1 < static_cast<int>(slots_.size()) ? found_ + 1 : 0;
  const bool is_next = slots_[static_cast<size_t>(next)].request.get() == entry.request.get();
  const int position = is_next ? next : Find(entry);
  if (position >= 0) found_ = position;
  return position;
}

int Collector::Find(const Entry& entry) {
  const auto same = by_request_.find(entry.request.get());
  if (same != by_request_.end()) return same->second;
  const auto like = by_key_.find(entry.request->key);
  if (like == by_key_.end()) return -1;
  Slot& slot = slots_[static_cast<size_t>(like->second)];
  if (!(*slot.request == *entry.request)) return -1;
  by_request_.erase(slot.request.get());
  slot.request = entry.request;  // the request object that most likely comes again
  by_request_[slot.request.get()] = like->second;
  return like->second;
}

// An alltoall's splits change from call to call. Every rank must learn of splits that do not fit:
// the negotiator does that.
bool Collector::FitsSplits(const Entry& entry, int position) const {
  const std::vector<int64_t>& splits = entry.extras().splits;
  if (splits.empty()) return true;
  const Decision& decision = step_->collectives[static_cast<size_t>(position)].decision;
  if (decision.first_dims.empty() || splits.size() != decision.first_dims[0].size()) return false;
  const int64_t rows = entry.request->tensors[0].shape[0];
  for (const int64_t n : splits) {
    if (n < 0 || n > rows) return false;
  }
  return std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows;
}

Collector::Fit Collector::Take(Entry* entry) {
  const int position = PositionOf(*entry);
  if (position < 0 || !FitsSplits(*entry, position)) return Fit::kForeign;
  Slot& slot = slots_[static_cast<size_t>(position)];
  if (!entry->anonymous && slot.bucket == in_flight_) return Fit::kTwice;
  if (!slot.filled) {
    Fill(std::move(*entry), position);
  } else if (entry->anonymous && slot.entry.anonymous) {
    behind_[position].push_back(std::move(*entry));
  } else {
    return Fit::kTwice;
  }
  ++size_;
  ++taken_;
  return Fit::kTaken;
}

void Collector::Fill(Entry&& entry, int position) {
  Slot& slot = slots_[static_cast<size_t>(position)];
  slot.entry = std::move(entry);
  slot.filled = true;
  --missing_[static_cast<size_t>(slot.bucket)];
}

void Collector::TakeBucket(std::vector<Agreed>* bucket) {
  const LockedStep::Bucket& span = step_->buckets[next_];
  bucket->reserve(bucket->size() + static_cast<size_t>(span.count));
  missing_[next_] = span.count;
  for (int position = span.first; position < span.first + span.count; ++position) {
    Slot& slot = slots_[static_cast<size_t>(position)];
    bucket->push_back(
        {std::move(slot.entry), step_->collectives[static_cast<size_t>(position)].decision});
    slot.filled = false;
    const auto behind = behind_.empty() ? behind_.end() : behind_.find(position);
    if (behind == behind_.end()) continue;
    Fill(std::move(behind->second.front()), position);
    behind->second.pop_front();
    if (behind->second.empty()) behind_.erase(behind);
  }
  size_ -= static_cast<size_t>(span.count);
  in_flight_ = static_cast<int>(next_);
  next_ = (next_ + 1) % step_->buckets.size();
}

void Collector::End(std::vector<Entry>* entries) {
  for (Slot& slot : slots_) {
    if (slot.filled) entries->push_back(std::move(slot.entry));
  }
  for (auto& [position, queue] : behind_) {
    for (Entry& entry : queue) entries->push_back(std::move(entry));
  }
  step_ = nullptr;
  slots_.clear();
  by_request_.clear();
  by_key_.clear();
  behind_.clear();
  size_ = 0;
}

}  // namespace tfhvd
