// Gathers: three ways to give every rank the blocks of all ranks: all at once, by doubling, around
// a ring. Between Begin and End of the transfers; End returns errors.
//
// One thread: the communicator's.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/collectives/transfer/transfers.h"

namespace tfhvd {

class Gathers {
 public:
  // `transfers` must outlive this object.
  explicit Gathers(Transfers* transfers) : transfers_(transfers) {}

  // Each rank sends its block to all others at once. `out` holds this rank's block in its place;
  // `bytes`: of each rank's block.
  void Directly(char* out, const std::vector<int64_t>& bytes);

  // In log2(ranks) steps. `rotated` begins with this rank's block; the next ranks' blocks follow in
  // order, in a circle.
  void ByDoubling(char* rotated, const std::vector<int64_t>& bytes);

  // Each rank passes the blocks from the rank before to the next one, for large blocks; `out` as
  // for Directly.
  void AroundRing(char* out, const std::vector<int64_t>& bytes);

 private:
  using TransferId = Transfers::TransferId;

  Transfers* const transfers_;  // Not owned.
};

}  // namespace tfhvd
