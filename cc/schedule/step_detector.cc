#include "cc/schedule/step_detector.h"

#include <algorithm>

namespace tfhvd {
void StepDetector::Saw(const Item& item) {
  known_.Saw(item.id);
  if (rest_.erase(item.id) > 0) return;
  rest_.clear();
  Count(item);
}

void StepDetector::Disturbed() {
  known_.Saw(kNoId);
  rest_.clear();
  CountAnew();
}

void StepDetector::Count(const Item& item) {
  if (current_ids_.count(item.id) != 0) {  // a step has ended that differs from the last one
    last_.swap(current_);
    last_ids_.swap(current_ids_);
    repeats_ = 1;
    current_.clear();
    current_ids_.clear();
  }
  current_.push_back(item);
  current_ids_.insert(item.id);
  if (current_ids_ != last_ids_) return;
  ++repeats_;
  last_.swap(current_);
  current_.clear();
  current_ids_.clear();
}

void StepDetector::CountAnew() {
  current_.clear();
  current_ids_.clear();
  last_.clear();
  last_ids_.clear();
  repeats_ = 0;
}

bool StepDetector::Repeats() const {
  if (is_locked_) return false;
  if (known_.resumed()) return true;
  return current_.empty() && repeats_ > 0 && repeats_ >= known_.Needed(last_ids_);
}

bool StepDetector::Trusting() const {
  if (!known_.resumed() || known_.locked_with() == CutWith::kEither) return trust_.given();
  return known_.locked_with() == CutWith::kTrust;
}

std::vector<Bucket> StepDetector::Schedule(int64_t bucket_bytes) const {
  return Cut(Trusting(), bucket_bytes);
}

const std::vector<Bucket>& StepDetector::Lock(int64_t bucket_bytes, int64_t steps) {
  const bool trusting = Trusting();
  std::vector<Bucket> buckets = Cut(trusting, bucket_bytes);
  const bool matters = Cut(!trusting, bucket_bytes) != buckets;
  known_.Locked(step(), std::move(buckets),
                !matters   ? CutWith::kEither
                : trusting ? CutWith::kTrust
                           : CutWith::kDoubt);
  is_locked_ = true;
  if (known_.locked_with() == CutWith::kDoubt) {
    steps = steps > 0 ? std::min(steps, trust_.left()) : trust_.left();
  }
  term_ = steps * static_cast<int64_t>(known_.locked().size());
  return known_.locked();
}

void StepDetector::Ended(int64_t rounds, bool late) {
  is_locked_ = false;
  const bool doubted = !trust_.given();
  trust_.Ended(rounds / static_cast<int64_t>(known_.locked().size()),
               known_.locked_with() == CutWith::kTrust, late);
  known_.Ended(rounds, late);
  if (doubted && trust_.given()) known_.ForgetDoubts();
  if (rounds == 0) return;  // as if never locked: the count continues, in a step or after it
  CountAnew();
  const std::vector<Bucket>& step = known_.locked();
  const auto ran = static_cast<size_t>(rounds) % step.size();
  for (size_t i = ran; ran > 0 && i < step.size(); ++i) {
    rest_.insert(step[i].begin(), step[i].end());
  }
}

}  // namespace tfhvd
