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

  // A collective begins, and needs nothing that is in them.
  void BeginCall() {
    for (WorkMemory& buffer : buffers_) buffer.BeginUse();
  }

  // At least so many bytes. The same memory until more is asked for, which loses what was in it.
  char* Get(Buffer buffer, int64_t bytes) {
    char* const memory = buffers_[buffer].Get(bytes);
    if (memory == nullptr && bytes > 0) throw std::bad_alloc();  // as operator new does
    return memory;
  }

 private:
  WorkMemory buffers_[kBuffers];
};

}  // namespace tfhvd
