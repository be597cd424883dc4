// CutStep: cuts a step into the buckets of a schedule. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/types.h"
#include "cc/flow/messages.h"

namespace tfhvd {

// One collective of a step, which all ranks agreed on by its number in the cache.
struct StepItem {
  CacheId id = kNoId;
  int64_t bytes = 0;
  uint64_t agreed_at = 0;  // the agreement's sequence number
  // The last agreement that some rank had taken when it announced this one
  uint64_t known_before = 0;
  bool fusible = false;  // a reduction: programs rarely wait for one before the next
  DeviceKind device = DeviceKind::kHost;
};

// Returns the buckets of `step`, in its order. A bucket takes no more items once it has
// `bucket_bytes`, scaled for GPUs and for several hosts (BucketBytes), so that communication can
// begin while the rest of the step is still computed. If the step ends on a GPU, or the job has
// several hosts, the last bucket is small, because no computation is left to overlap with it.
//
// A rank may wait for the result of one collective before it submits another, and then the two must
// not share a bucket. They are certainly independent if every rank announced the second before it
// had taken the agreement on the first. `trusting`: reductions are assumed to be independent in any
// case (trust.h).
std::vector<Bucket> CutStep(const std::vector<StepItem>& step, bool trusting, int64_t bucket_bytes,
                            bool across_hosts);

}  // namespace tfhvd
