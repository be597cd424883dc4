#include "cc/negotiate/step_watch.h"

#include <algorithm>

namespace tfhvd {
namespace {

// A bucket takes no more once it has so many bytes: communication can begin while the rest of a
// step is still computed.
constexpr int64_t kBucketBytes = 8 << 20;

// A schedule that served so many steps has paid for its end: a round of announcements, or, where a
// bucket did not fill, the time until that was noticed.
constexpr int64_t kWorthwhileSteps = 2;
constexpr int64_t kWorthwhileStepsWhenLate = 16;
constexpr int64_t kMostRepeats = 1 << 20;

}  // namespace

void StepWatch::Saw(const Item& item) {
  if (current_ids_.count(item.id) != 0) {  // a step has ended, and was another one than the last
    last_.swap(current_);
    last_ids_.swap(current_ids_);
    repeats_ = 1;
    current_.clear();
    current_ids_.clear();
  }
  current_.push_back(item);
  current_ids_.insert(item.id);
  if (Is(last_ids_)) {
    ++repeats_;
  } else if (Is(proven_)) {
    repeats_ = needed_;
  } else {
    return;
  }
  last_.swap(current_);
  last_ids_.swap(current_ids_);
  current_.clear();
  current_ids_.clear();
}

// Whether the step under way is whole and made of these.
bool StepWatch::Is(const std::unordered_set<CacheId>& ids) const {
  if (current_.size() != ids.size()) return false;
  return std::all_of(current_.begin(), current_.end(),
                     [&ids](const Item& item) { return ids.count(item.id) != 0; });
}

void StepWatch::Disturbed() {
  current_.clear();
  current_ids_.clear();
  last_.clear();
  last_ids_.clear();
  repeats_ = 0;
}

std::vector<Bucket> StepWatch::Schedule() const {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  bool all_fusible = false;
  uint64_t begun_at = 0;  // the agreement of the bucket's first item
  for (const Item& item : last_) {
    const bool independent = item.known_before < begun_at;
    const bool trusted = trusting_ && all_fusible && item.fusible;
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

void StepWatch::Ended(int64_t turns, bool late) {
  const auto steps = turns / static_cast<int64_t>(std::max<size_t>(1, Schedule().size()));
  const bool paid = steps >= (late ? kWorthwhileStepsWhenLate : kWorthwhileSteps);
  needed_ = paid ? kLeastRepeats : std::min(2 * needed_, kMostRepeats);
  proven_.clear();
  if (paid && !late) proven_ = last_ids_;
  if (late) trusting_ = false;
  Disturbed();
}

}  // namespace tfhvd
