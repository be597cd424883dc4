#include "cc/observe/outliers.h"

#include <algorithm>
#include <utility>

namespace tfhvd {

void SizeHistory::Largest::Add(float size) {
  if (size <= least()) return;
  sizes_[at_least_] = size;
  at_least_ = static_cast<size_t>(std::min_element(sizes_.begin(), sizes_.end()) - sizes_.begin());
}

bool SizeHistory::IsKnown(size_t number, const GradientSize& size) const {
  if (number >= known_.size()) return false;
  const Known& known = known_[number];
  return known.steps >= kFewest && known.whole == size.whole && known.usual_norm() > kNoSize;
}

bool SizeHistory::IsAbsurd(const GradientSize& size) const {
  return size.norm - size.largest < kOneValue && size.largest > ever_ + kAbsurd;
}

float SizeHistory::Above(size_t number, const GradientSize& size) const {
  if (!IsKnown(number, size)) return size.largest - ever_;
  const Known& known = known_[number];
  return std::max(size.norm - known.usual_norm(), size.largest - known.usual_largest());
}

bool SizeHistory::LooksLikeAFault(const std::vector<GradientSize>& sizes, size_t suspect,
                                  float above) const {
  const bool is_first = sizes[suspect].layer == sizes[0].layer;
  if (!is_first && sizes[suspect].norm - sizes[suspect].largest < kOneValue) return true;
  bool more = !is_first;
  for (size_t number = 0; number < sizes.size(); ++number) {
    const GradientSize& size = sizes[number];
    if (number == suspect || size.layer != sizes[suspect].layer) continue;
    if (size.largest == kNoSize) continue;
    if (Above(number, size) < std::max(kAlsoFar, above / 2)) return false;
    more = true;
  }
  return more;
}

Suspicion SizeHistory::Judge(const std::vector<GradientSize>& sizes) const {
  if (steps_ >= kFewest) {
    for (size_t number = 0; number < sizes.size(); ++number) {
      if (IsAbsurd(sizes[number])) return {static_cast<int64_t>(number), kCertain};
    }
  }
  Suspicion most = {-1, kUnusual};
  size_t suspect = 0;
  for (size_t number = 0; number < sizes.size(); ++number) {
    if (sizes[number].largest == kNoSize) continue;
    if (!IsKnown(number, sizes[number])) return {-1, kUnknown};
    const float above = Above(number, sizes[number]);
    if (above <= most.above) continue;
    most.above = above;
    suspect = number;
  }
  if (most.above <= kUnusual) return {};
  if (most.above < kFar || !LooksLikeAFault(sizes, suspect, most.above)) return most;
  bool others = false;
  for (size_t number = 0; number < sizes.size(); ++number) {
    const GradientSize& size = sizes[number];
    if (size.largest == kNoSize || size.layer == sizes[suspect].layer) continue;
    const bool is_like_it = Above(number, size) > std::max(kUnusual, most.above / kAlone);
    if (is_like_it || sizes[suspect].norm < size.norm + kNegligible) return most;
    others = true;
  }
  if (others) most.suspect = static_cast<int64_t>(suspect);
  return most;
}

void SizeHistory::Add(const std::vector<GradientSize>& sizes) {
  known_.resize(std::max(known_.size(), sizes.size()));
  const bool begins = steps_++ % kPeriod == 0;
  for (size_t number = 0; number < known_.size(); ++number) {
    Known* const known = &known_[number];
    if (begins) {
      known->norm[1] = std::exchange(known->norm[0], {});
      known->largest[1] = std::exchange(known->largest[0], {});
    }
    if (number >= sizes.size() || sizes[number].largest == kNoSize) continue;
    if (known->whole != sizes[number].whole) *known = {};
    known->whole = sizes[number].whole;
    ++known->steps;
    known->norm[0].Add(sizes[number].norm);
    known->largest[0].Add(sizes[number].largest);
    ever_ = std::max(ever_, sizes[number].largest);
  }
}

}  // namespace tfhvd
