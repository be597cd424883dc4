// StepSettings: how a repeating step is cut into buckets, and which tensors of a bucket one call
// carries. Equal on all ranks.
//
// The settings apply to tensors in the memory of one host. A GPU copies about a hundred times
// faster, and needs about ten times longer to begin a call: there, larger tensors are fused, and
// buckets are larger. A network takes about ten times as long as shared memory for a bucket, which
// cannot begin before its last gradient is there: between hosts, buckets are smaller.
#pragma once

#include <cstdint>

#include "cc/base/types.h"

namespace tfhvd {

// Which of the tensors that were agreed on together one call carries.
struct FusionLimits {
  int64_t threshold = 128 << 20;  // bytes; the most that one call carries of several tensors
  // Bytes; a tensor of at least this size gets a separate call, in place.
  int64_t alone_from = 1 << 20;

  bool operator==(const FusionLimits& other) const {
    return threshold == other.threshold && alone_from == other.alone_from;
  }
};

// Returns `alone_from` scaled for a tensor on a device.
inline int64_t AloneFrom(const FusionLimits& limits, DeviceKind device) {
  constexpr int64_t kOnGpu = 16;
  return device == DeviceKind::kHost ? limits.alone_from : kOnGpu * limits.alone_from;
}

// Returns `bucket_bytes` scaled for tensors on a device, in a job of one host or several.
inline int64_t BucketBytes(int64_t bucket_bytes, DeviceKind device, bool across_hosts) {
  constexpr int64_t kOnGpu = 3;
  constexpr int64_t kPartAcrossHosts = 4;
  if (device != DeviceKind::kHost) return kOnGpu * bucket_bytes;
  return across_hosts ? bucket_bytes / kPartAcrossHosts : bucket_bytes;
}

struct StepSettings {
  int64_t bucket_bytes = 8 << 20;  // a bucket takes no more tensors once it has this many
  FusionLimits fusion;

  bool operator==(const StepSettings& other) const {
    return bucket_bytes == other.bucket_bytes && fusion == other.fusion;
  }
  bool operator!=(const StepSettings& other) const { return !(*this == other); }
};

}  // namespace tfhvd
