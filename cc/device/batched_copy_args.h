// What the kernel of batched_copy.cu is called with. Read by the compiler of the GPU as well: it
// includes nothing.
#pragma once

namespace tfhvd {

enum : int {
  kBatchedCopySegments = 128,
  kBatchedCopyThreads = 256,
  // What one block copies, of the wider type: four accesses of 16 bytes for each thread.
  kBatchedCopyBlockBytes = 16 << 10,
};

// By value, below the 4 KiB that a kernel's parameters may take.
struct BatchedCopyArgs {
  struct Segment {
    void* to;
    const void* from;
    long long count;  // elements; at least one
  };
  Segment segments[kBatchedCopySegments];
  // Blocks are dealt out by bytes, so that a long segment gets many and a short one gets one:
  // segment s has the blocks from first_block[s] to where the next one's begin.
  unsigned first_block[kBatchedCopySegments];
  int segment_count;
  int block_items;  // elements that one block copies
  int from_type;    // of `from`, a number of DType
  int to_type;      // of `to`: the same, or the other of a 16-bit float and float32
  double factor;    // 1: none. Integers go through double and are truncated.
};

}  // namespace tfhvd
