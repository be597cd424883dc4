// StepSettings: into which buckets a step that repeats is cut, and which tensors of a bucket one
// call carries. Equal on all ranks.
#pragma once

#include <cstdint>

namespace tfhvd {

// Which of the tensors that were agreed together one call carries.
struct FusionLimits {
  int64_t threshold = 128 << 20;  // bytes; the most that a call carries of several tensors
  int64_t alone_from = 1 << 20;   // bytes; a tensor of so many has a call of its own, in place

  bool operator==(const FusionLimits& other) const {
    return threshold == other.threshold && alone_from == other.alone_from;
  }
};

struct StepSettings {
  int64_t bucket_bytes = 8 << 20;  // a bucket takes no more once it has so many
  FusionLimits fusion;

  bool operator==(const StepSettings& other) const {
    return bucket_bytes == other.bucket_bytes && fusion == other.fusion;
  }
  bool operator!=(const StepSettings& other) const { return !(*this == other); }
};

}  // namespace tfhvd
