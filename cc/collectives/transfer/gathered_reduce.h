// GatheredReduce: small reductions, in which every rank gets the values of all ranks and reduces
// them; and the decision which reductions are small for this network.
//
// One thread: the communicator's. Collective over the ranks of the transfers, between their Begin
// and End; End returns errors.
#pragma once

#include <cstdint>

#include "cc/collectives/transfer/block_reduce.h"
#include "cc/collectives/transfer/gather_choice.h"
#include "cc/collectives/transfer/gathers.h"
#include "cc/collectives/transfer/scratch_buffer.h"
#include "cc/collectives/transfer/transfers.h"

namespace tfhvd {

class GatheredReduce {
 public:
  // All must outlive this object.
  GatheredReduce(Transfers* transfers, Gathers* gathers, ScratchBuffer* scratch)
      : transfers_(transfers), gathers_(gathers), scratch_(scratch), choice_(transfers->size()) {}

  // Returns whether a reduction of `bytes` bytes of each rank is faster gathered than in blocks;
  // equal on all ranks. Measures the network the first time that the answer depends on it.
  bool Suits(int64_t bytes);

  // Reduces `count` elements of each rank.
  void Run(const BlockReduce::Call& call, int64_t count);

 private:
  void Measure();

  Transfers* const transfers_;    // Not owned.
  Gathers* const gathers_;        // Not owned.
  ScratchBuffer* const scratch_;  // Not owned.
  GatherChoice choice_;
};

}  // namespace tfhvd
