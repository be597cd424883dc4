// How a step is cut into the buckets of a schedule. A pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/types.h"
#include "cc/flow/messages.h"

namespace tfhvd {

// One collective of a step, agreed on by all ranks, who knew it by its number.
struct StepItem {
  CacheId id = kNoId;
  int64_t bytes = 0;
  uint64_t agreed_at = 0;     // the agreement's sequence number
  uint64_t known_before = 0;  // the last agreement that some rank had taken when it announced this
  bool fusible = false;       // a reduction: nothing usually waits for one before the next
  DeviceKind device = DeviceKind::kHost;
};

// The buckets of `step`, in its order; a bucket takes no more once it has `bucket_bytes`, or what
// that is on a GPU or between hosts: communication can begin while the rest of a step is still
// computed. Where the step ends on a GPU, or is one of several hosts, its last bucket is small, for
// nothing is left to compute beside it.
//
// A rank may wait for one collective's result before it submits another, and the two must not
// share a bucket. That they are independent is certain where every rank announced the second
// without having seen the first's agreement. `trusting`: reductions are taken to be independent all
// the same (trust.h).
std::vector<Bucket> CutStep(const std::vector<StepItem>& step, bool trusting, int64_t bucket_bytes,
                            bool across_hosts);

}  // namespace tfhvd
