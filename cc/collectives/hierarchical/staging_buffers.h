// StagingBuffers: the memory through which data pass between the two levels of a collective.
//
// One thread.
#pragma once

#include <cstdint>
#include <new>

#include "cc/memory/work_memory.h"

namespace tfhvd {

class StagingBuffers {
 public:
  enum Buffer { kPacked, kPart, kShare, kBuffers };

  // Begins a collective, which needs none of their contents.
  void BeginCall() {
    for (WorkMemory& buffer : buffers_) buffer.BeginUse();
  }

  // Returns at least `bytes` bytes: the same memory until a larger request, which loses its
  // contents.
  char* Get(Buffer buffer, int64_t bytes) {
    char* const memory = buffers_[buffer].Get(bytes);
    if (memory == nullptr && bytes > 0) throw std::bad_alloc();  // as operator new does
    return memory;
  }

 private:
  WorkMemory buffers_[kBuffers];
};

}  // namespace tfhvd
