// LevelMemory: what HierarchicalCommunicator does by itself with the memory that it works on,
// between the calls of its two communicators. The host's memory, or an accelerator's.
//
// One thread. On an accelerator a call is done when it is in order on the device's stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/arithmetic.h"
#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class LevelMemory {
 public:
  enum StagingBuffer { kPacked, kPart, kShare, kStagingBuffers };

  virtual ~LevelMemory() = default;

  // At least so many bytes. The same memory until more is asked for, which loses what was in it.
  virtual Status Get(StagingBuffer buffer, int64_t bytes, char** memory) = 0;

  // Where the two are the same it does nothing.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;

  // As in base/arithmetic.h.
  virtual Status Widen(void* out, const void* in, int64_t count, DType dtype,
                       const Reduction& reduction) = 0;
  virtual Status Complete(void* out, const void* in, int ranks, int64_t count, DType dtype,
                          const Reduction& reduction) = 0;

  // Collective over `local`: every rank's numbers, one behind the other, on the host.
  virtual Status GatherNumbers(Communicator* local, const std::vector<int64_t>& mine,
                               std::vector<int64_t>* all) = 0;
};

std::unique_ptr<LevelMemory> MakeHostLevelMemory();

}  // namespace tfhvd
