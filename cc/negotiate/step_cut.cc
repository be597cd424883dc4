#include "cc/negotiate/step_cut.h"

namespace tfhvd {

std::vector<Bucket> CutStep(const std::vector<StepItem>& step, bool trusting,
                            int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  bool all_fusible = false;
  uint64_t begun_at = 0;  // the agreement of the bucket's first item
  for (const StepItem& item : step) {
    const bool independent = item.known_before < begun_at;
    const bool trusted = trusting && all_fusible && item.fusible;
    if (buckets.empty() || bytes >= bucket_bytes || !(independent || trusted)) {
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

}  // namespace tfhvd
