#include "cc/negotiate/step_detector.h"

namespace tfhvd {
namespace {

// A bucket takes no more once it has so many bytes: communication can begin while the rest of a
// step is still computed.
constexpr int64_t kBucketBytes = 8 << 20;

}  // namespace

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
  if (current_ids_.count(item.id) != 0) {  // a step has ended, and was another one than the last
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
  if (known_.resumed() != nullptr) return true;
  return current_.empty() && repeats_ > 0 && repeats_ >= known_.Needed(last_ids_);
}

std::vector<Bucket> StepDetector::Schedule() const {
  const std::vector<Bucket>* const resumed = known_.resumed();
  return resumed != nullptr ? *resumed : Cut(trust_.given());
}

const std::vector<Bucket>& StepDetector::Lock() {
  if (known_.resumed() != nullptr) {
    known_.LockedAgain();
  } else {
    const bool matters = Cut(true) != Cut(false);
    known_.Locked(Schedule(), !matters         ? CutWith::kEither
                              : trust_.given() ? CutWith::kTrust
                                               : CutWith::kDoubt);
  }
  is_locked_ = true;
  const auto buckets = static_cast<int64_t>(known_.locked().size());
  term_ = known_.locked_with() == CutWith::kDoubt ? trust_.left() * buckets : 0;
  return known_.locked();
}

std::vector<Bucket> StepDetector::Cut(bool trusting) const {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  bool all_fusible = false;
  uint64_t begun_at = 0;  // the agreement of the bucket's first item
  for (const Item& item : last_) {
    const bool independent = item.known_before < begun_at;
    const bool trusted = trusting && all_fusible && item.fusible;
    if (buckets.empty() || bytes >= kBucketBytes || !(independent || trusted)) {
      buckets.emplace_back();
      bytes = 0;
      all_fusible = true;
      begun_at = item.agreed_at;
    }
    buckets.back().push_back(item.id);
    bytes += item.bytes;
    all_fusible = all_fusible && item.fusible;
  }
  return buckets;
}

void StepDetector::Ended(int64_t rounds, bool late) {
  is_locked_ = false;
  const bool doubted = !trust_.given();
  trust_.Ended(rounds / static_cast<int64_t>(known_.locked().size()),
               known_.locked_with() == CutWith::kTrust, late);
  known_.Ended(rounds, late);
  if (doubted && trust_.given()) known_.ForgetDoubts();
  if (rounds == 0)
    return;  // as if it had not been locked: the count goes on, in a step or after it
  CountAnew();
  const std::vector<Bucket>& step = known_.locked();
  const auto ran = static_cast<size_t>(rounds) % step.size();
  for (size_t i = ran; ran > 0 && i < step.size(); ++i) {
    rest_.insert(step[i].begin(), step[i].end());
  }
}

}  // namespace tfhvd
