// What the kernel of batched_copy.cu is called with. Read by the compiler of the GPU as well: it
// includes nothing.
#pragma once

namespace tfhvd {

enum : int { kBatchedCopySegments = 128, kBatchedCopyThreads = 256 };

// By value, below the 4 KiB that a kernel's parameters may take.
struct BatchedCopyArgs {
  struct Segment {
    void* to;
    const void* from;
    long long count;  // elements
  };
  Segment segments[kBatchedCopySegments];
  int from_type;  // of `from`, a number of DType
  int to_type;    // of `to`: the same, or the other of a 16-bit float and float32
  double factor;  // 1: none. Integers go through double and are truncated.
};

}  // namespace tfhvd
