#include "cc/backends/shm/store_choice.h"

#include <algorithm>

namespace tfhvd {
namespace {

// Writes past the caches once that is clearly faster, until it no longer is: a difference of a
// tenth changes with the sizes of the blocks.
constexpr double kClearlyFaster = 0.75;
constexpr double kNoLongerFaster = 0.9;

size_t IndexOf(StoreIn stores) { return static_cast<size_t>(stores); }

}  // namespace

StoreChoice::Block StoreChoice::Next(int64_t bytes) {
  if (bytes < kLeastBytes) return {};
  if (left_ > 0) {
    --left_;
    return {choice_, false};
  }
  if (at_ == 0) {
    first_bytes_ = bytes;
    counted_ = 0;
    for (Way& way : ways_) {
      way.seconds = 0.0;
      way.bytes = 0;
    }
  } else if (bytes > 2 * first_bytes_ || 2 * bytes < first_bytes_) {
    at_ = 0;
    left_ = kShortestPause;
    return {choice_, false};
  }
  const int at = at_++;
  if (at_ == kWays * kRun) {
    at_ = 0;
    left_ = pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
  }
  return {at < kRun ? StoreIn::kCaches : StoreIn::kMemory, at % kRun >= kUncounted};
}

void StoreChoice::Took(StoreIn stores, int64_t bytes, double seconds) {
  Way& way = ways_[IndexOf(stores)];
  way.seconds += seconds;
  way.bytes += bytes;
  if (++counted_ == kWays * (kRun - kUncounted)) Decide();
}

void StoreChoice::Decide() {
  for (Way& way : ways_) {
    way.costs[static_cast<size_t>(trials_ % kKept)] = way.seconds / static_cast<double>(way.bytes);
  }
  ++trials_;
  const double caches = BestOf(ways_[IndexOf(StoreIn::kCaches)]);
  const double memory = BestOf(ways_[IndexOf(StoreIn::kMemory)]);
  const double limit = choice_ == StoreIn::kMemory ? kNoLongerFaster : kClearlyFaster;
  choice_ = memory < limit * caches ? StoreIn::kMemory : StoreIn::kCaches;
}

double StoreChoice::BestOf(const Way& way) const {
  const int known = std::min(trials_, kKept);
  return *std::min_element(way.costs.begin(), way.costs.begin() + known);
}

}  // namespace tfhvd
