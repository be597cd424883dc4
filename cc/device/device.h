// Device: what the executor needs of the memory that tensors live in. The host's is here; an
// accelerator's implements the same.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace tfhvd {

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;

  // Scratch memory through which small tensors travel together: at least `bytes` bytes, aligned to
  // a cache line. It is the same memory at every call; a larger request loses what was in it.
  virtual Status Scratch(int64_t bytes, char** out) = 0;

  // REQUIRES: the ranges do not overlap.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;
};

std::unique_ptr<Device> MakeHostDevice();

}  // namespace tfhvd
