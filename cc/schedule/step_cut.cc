#include "cc/schedule/step_cut.h"

#include "cc/flow/step_settings.h"

namespace tfhvd {
namespace {

// The size of the last bucket on a GPU, or between hosts.
constexpr int64_t kSmallBytes = 1 << 20;

// Returns where the last bucket begins at the latest; the step's size if the last bucket may be as
// large as any other.
size_t LastBegins(const std::vector<StepItem>& step, bool across_hosts) {
  size_t begin = step.size();
  int64_t bytes = 0;
  while (begin > 0 && (across_hosts || step[begin - 1].device != DeviceKind::kHost)) {
    bytes += step[begin - 1].bytes;
    if (bytes > kSmallBytes) break;
    --begin;
  }
  return begin;
}

}  // namespace

std::vector<Bucket> CutStep(const std::vector<StepItem>& step, bool trusting, int64_t bucket_bytes,
                            bool across_hosts) {
  std::vector<Bucket> buckets;
  int64_t bytes = 0;
  bool all_fusible = false;
  uint64_t begun_at = 0;  // the agreement of the bucket's first item
  const size_t last = LastBegins(step, across_hosts);
  for (size_t i = 0; i < step.size(); ++i) {
    const StepItem& item = step[i];
    const bool full = bytes >= BucketBytes(bucket_bytes, item.device, across_hosts) || i == last;
    const bool independent = item.known_before < begun_at;
    const bool trusted = trusting && all_fusible && item.fusible;
    if (buckets.empty() || full || !(independent || trusted)) {
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
