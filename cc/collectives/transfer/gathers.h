// Gathers: the three ways by which every rank gets everybody's blocks: all at once, by doubling,
// around a ring. Between Begin and End of the transfers, which hold the outcome.
//
// One thread: the communicator's.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/collectives/transfer/transfers.h"

namespace tfhvd {

class Gathers {
 public:
  // Must outlive this object.
  explicit Gathers(Transfers* transfers) : transfers_(transfers) {}

  // Each rank sends its block to every other one at once. `out` holds this rank's block in its
  // place; `bytes`: of each rank's block.
  void Directly(char* out, const std::vector<int64_t>& bytes);

  // In log2(ranks) steps. `rotated` begins with this rank's block; the next ranks' follow in their
  // order, around the circle.
  void ByDoubling(char* rotated, const std::vector<int64_t>& bytes);

  // Each rank passes to the next one what comes from the one before, for large blocks; `out` as for
  // Directly.
  void AroundRing(char* out, const std::vector<int64_t>& bytes);

 private:
  using TransferId = Transfers::TransferId;

  Transfers* const transfers_;  // Not owned.
};

}  // namespace tfhvd
