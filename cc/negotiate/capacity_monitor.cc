#include "cc/negotiate/capacity_monitor.h"

#include <algorithm>

#include "cc/base/config.h"

namespace tfhvd {
namespace {

constexpr int kTimes = 3;

// Limits the memory for names that are used only once.
constexpr size_t kMostKeys = 1 << 17;

}  // namespace

std::string CapacityMonitor::SawWithoutNumber(const Key& key) {
  if (warned_ || capacity_ == 0) return "";
  if (times_.size() == kMostKeys) {
    times_.clear();
    again_ = 0;
  }
  const int times = ++times_[KeyHash()(key)];
  if (times == 2) ++again_;
  if (times < kTimes) return "";
  warned_ = true;
  std::string warning = Warning();
  times_.clear();
  return warning;
}

std::string CapacityMonitor::Warning() const {
  std::string warning =
      "TFHVD_CACHE_CAPACITY=" + std::to_string(capacity_) +
      " is too small for this program, which repeats more collectives than that. Those that do not "
      "fit are negotiated by name each time, and a step that contains one of them is never locked "
      "to run without negotiation, so training is slower than it could be.";
  if (capacity_ >= kMostCacheCapacity) return warning;
  // Enough for the collectives that repeatedly had no number, and for as many as have one now.
  int64_t enough = 1;
  while (enough < again_ + capacity_) enough *= 2;
  return warning +
         " Set TFHVD_CACHE_CAPACITY=" + std::to_string(std::min(enough, kMostCacheCapacity)) + ".";
}

}  // namespace tfhvd
