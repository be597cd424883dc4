// ShmAllReduce: allreduces of ranks on one host through shared memory.
//
// Large reductions are divided into blocks. Every rank reduces one part of each block, for all
// ranks: the ranks post their values (first exchange), each reduces its part and posts the result
// (second exchange), and each copies the others' results out. These three steps overlap for
// consecutive blocks, so that ranks rarely wait for each other. Small reductions, and all
// reductions of two ranks, take one exchange: every rank reduces everything.
//
// Owned by ShmCommunicator, whose thread it runs on.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/backends/shm/shm_blocks.h"
#include "cc/backends/shm/shm_options.h"
#include "cc/backends/shm/store_choice.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class ShmAllReduce {
 public:
  // Both must outlive this object.
  ShmAllReduce(ShmBlocks* blocks, const ShmOptions& options) : blocks_(blocks), options_(options) {}

  // As Communicator::AllReduce and AllReduceSpans. REQUIRES for RunSpans: is_direct(their bytes).
  Status Run(const void* in, void* out, int64_t count, DType dtype, const Reduction& reduction);
  Status RunSpans(const std::vector<Span>& spans, DType dtype, const Reduction& reduction);

  // Returns whether to use a single exchange in which every rank reduces everything.
  bool is_direct(int64_t bytes) const {
    return blocks_->ranks <= kFewRanks || bytes * blocks_->ranks <= kSmallBytes;
  }

 private:
  struct Block;  // a reduction's block in flight

  // The number of ranks up to which every rank reduces everything. With two, each would otherwise
  // read half of the other's values and half of its results; this way it reads all of the other's
  // values.
  static constexpr int kFewRanks = 2;
  // The number of bytes of all ranks together up to which a single exchange, in which every rank
  // reduces everything, is faster. For few ranks it always is.
  static constexpr int64_t kSmallBytes = 256 * 1024;

  Status InOneExchange(const Span* spans, int64_t bytes, DType dtype, const Reduction& reduction,
                       StoreIn store);
  Status PostValues(Block* block);
  Status ReducePart(Block* block, DType dtype, const Reduction& reduction);
  Status CopyResults(Block* block);

  ShmBlocks* const blocks_;  // Not owned.
  const ShmOptions& options_;
  // How to write blocks of each kind: the kinds differ in the time of each way.
  StoreChoice in_one_;  // reductions in one exchange
  StoreChoice in_two_;
};

}  // namespace tfhvd
