#include "cc/collectives/transfer/gather_choice.h"

#include <algorithm>

namespace tfhvd {
namespace {

// The limit with few ranks, because every rank stores and reduces all values.
constexpr int64_t kMostTotal = 1 << 20;

// The number of additional bytes that is too small to justify a measurement.
constexpr int64_t kLittle = 16 << 10;

}  // namespace

GatherChoice::Answer GatherChoice::Of(int64_t bytes) const {
  if (IsSmall(bytes * ranks_, bytes)) return Answer::kGather;
  if (ranks_ > kFewRanks || bytes * ranks_ > kMostTotal) return Answer::kBlocks;
  // (ranks - 1) * bytes instead of 2 (ranks - 1) / ranks * bytes.
  const int64_t more = bytes * (ranks_ - 1) * (ranks_ - 2) / ranks_;
  if (more <= kLittle) return Answer::kGather;
  if (worth_ < 0) return Answer::kMeasure;
  return more <= worth_ ? Answer::kGather : Answer::kBlocks;
}

int64_t GatherChoice::WorthOfAWay(double way, double probe) const {
  const double sent = static_cast<double>((ranks_ - 1) * kProbeBytes);
  const double carrying = probe - way;
  // The network is too fast to be measured.
  if (carrying <= 0.0) return kMostTotal;
  return static_cast<int64_t>(std::clamp(sent * way / carrying, 0.0, double{kMostTotal}));
}

}  // namespace tfhvd
