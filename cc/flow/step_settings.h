// StepSettings: into which buckets a step that repeats is cut, and which tensors of a bucket one
// call carries. Equal on all ranks.
//
// The settings are those of tensors in the memory of one host. A GPU copies some hundred times
// faster, and begins a call some ten times later: there, larger tensors are copied together, and
// buckets are larger. A network takes some ten times as long as shared memory for a bucket, which
// cannot begin before the last of its gradients is there: between hosts, buckets are smaller.
#pragma once

#include <cstdint>

#include "cc/base/types.h"

namespace tfhvd {

// Which of the tensors that were agreed together one call carries.
struct FusionLimits {
  int64_t threshold = 128 << 20;  // bytes; the most that a call carries of several tensors
  int64_t alone_from = 1 << 20;   // bytes; a tensor of so many has a call of its own, in place

  bool operator==(const FusionLimits& other) const {
    return threshold == other.threshold && alone_from == other.alone_from;
  }
};

// What `alone_from` is for a tensor on a device.
inline int64_t AloneFrom(const FusionLimits& limits, DeviceKind device) {
  constexpr int64_t kOnGpu = 16;
  return device == DeviceKind::kHost ? limits.alone_from : kOnGpu * limits.alone_from;
}

// What `bucket_bytes` is for the tensors of a device, in a job of one host or several.
inline int64_t BucketBytes(int64_t bucket_bytes, DeviceKind device, bool across_hosts) {
  constexpr int64_t kOnGpu = 3;
  constexpr int64_t kPartAcrossHosts = 4;
  if (device != DeviceKind::kHost) return kOnGpu * bucket_bytes;
  return across_hosts ? bucket_bytes / kPartAcrossHosts : bucket_bytes;
}

struct StepSettings {
  int64_t bucket_bytes = 8 << 20;  // a bucket takes no more once it has so many
  FusionLimits fusion;

  bool operator==(const StepSettings& other) const {
    return bucket_bytes == other.bucket_bytes && fusion == other.fusion;
  }
  bool operator!=(const StepSettings& other) const { return !(*this == other); }
};

}  // namespace tfhvd
