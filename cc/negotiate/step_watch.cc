#include "cc/negotiate/step_watch.h"

#include <algorithm>

namespace tfhvd {
namespace {

// A bucket takes no more once it has so many bytes: communication can begin while the rest of a
// step is still computed.
constexpr int64_t kBucketBytes = 8 << 20;

// A schedule that served so many steps has paid for its beginning and end.
constexpr int64_t kWorthwhileSteps = 16;
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
  if (!SameAsLast()) return;
  last_.swap(current_);
  ++repeats_;
  current_.clear();
  current_ids_.clear();
}

bool StepWatch::SameAsLast() const {
  if (current_.size() != last_.size()) return false;
  return std::all_of(current_.begin(), current_.end(),
                     [this](const Item& item) { return last_ids_.count(item.id) != 0; });
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
  needed_ = steps >= kWorthwhileSteps ? kLeastRepeats : std::min(2 * needed_, kMostRepeats);
  if (late) trusting_ = false;
  Disturbed();
}

}  // namespace tfhvd
