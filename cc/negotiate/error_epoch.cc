#include "cc/negotiate/error_epoch.h"

namespace tfhvd {

std::vector<int> ErrorEpoch::Missing(const std::vector<uint64_t>& seen,
                                     const std::vector<bool>& left) {
  std::vector<int> missing;
  if (sequence_ == 0) return missing;
  for (size_t r = 0; r < concerned_.size(); ++r) {
    if (concerned_[r] && !left[r] && seen[r] < sequence_) missing.push_back(static_cast<int>(r));
  }
  if (missing.empty()) {
    sequence_ = 0;
    concerned_.assign(concerned_.size(), false);
  }
  return missing;
}

}  // namespace tfhvd
