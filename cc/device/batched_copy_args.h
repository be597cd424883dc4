// BatchedCopyArgs: the arguments of the kernel of batched_copy.cu. The compiler for the GPU reads
// this file, too, so it includes nothing.
#pragma once

namespace tfhvd {

enum : int {
  kBatchedCopySegments = 128,
  kBatchedCopyThreads = 256,
  // The bytes that one block copies, of the wider type: four accesses of 16 bytes for each thread.
  kBatchedCopyBlockBytes = 16 << 10,
};

// Passed by value; smaller than 4 KiB, the limit of a kernel's parameters.
struct BatchedCopyArgs {
  struct Segment {
    void* to;
    const void* from;
    long long count;  // elements; at least one
  };
  Segment segments[kBatchedCopySegments];
  // Blocks are assigned by bytes, so that a long segment gets many and a short one gets one:
  // segment s has the blocks from first_block[s] up to the first block of the next segment.
  unsigned first_block[kBatchedCopySegments];
  int segment_count;
  int block_items;  // elements that one block copies
  int from_type;    // of `from`, a number of DType
  int to_type;      // of `to`: the same type, or the other of a 16-bit float and float32
  double factor;    // 1: none; integers are scaled as double and truncated
};

}  // namespace tfhvd
