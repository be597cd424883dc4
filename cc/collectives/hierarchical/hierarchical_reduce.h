// HierarchicalReduce: the allreduce and the reducescatter of ranks on several hosts, in two levels:
// hierarchical_communicator.h says in which order values are combined, and in which types.
//
// One thread: the communicator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/collectives/hierarchical/two_levels.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {

class HierarchicalReduce {
 public:
  // Must outlive this object.
  explicit HierarchicalReduce(TwoLevels* levels) : levels_(levels) {}

  // As those of Communicator.
  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction);
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction);

 private:
  using Sizes = TwoLevels::Sizes;

  // What one reduction needs to know all along.
  struct Call {
    DType dtype;
    DType between;  // the type of what lies between the levels
    Reduction reduction;
    Reduction within;  // how the ranks of a host combine their values
    bool completed;    // whether a host's values are divided and scaled within it

    bool wider() const { return between != dtype; }
    int64_t item() const { return ItemSize(dtype); }
    int64_t wide_item() const { return ItemSize(between); }
  };
  Call MakeCall(DType dtype, const Reduction& reduction) const;
  // Of what the hosts have combined makes the result, in place.
  void Complete(const Call& call, char* values, int64_t count) const;

  // A piece of an allreduce, between the two levels.
  struct Piece {
    Sizes counts;          // elements of the parts, by local rank
    char* part = nullptr;  // this rank's
    char* out = nullptr;   // the place of the whole piece
    bool started = false;  // whether the part is in an allreduce of the lane
  };
  // So many pieces cross the network, or wait for it, at once.
  static constexpr size_t kPiecesAcross = 3;
  Status ReducePieces(const Call& call, const char* in, char* out, int64_t count,
                      std::deque<Piece>* across);
  Status ReduceWithin(const Call& call, const char* in, const Piece& piece);
  Status StartAcross(const Call& call, Piece* piece);
  Status FinishPiece(const Call& call, std::deque<Piece>* across);
  Status ReduceWideAcross(const Call& call, char* part, int64_t count);
  Status ScatterPiece(const Call& call, const std::vector<const char*>& blocks, const Sizes& counts,
                      char* out);
  Status HandOut(const char* results, const Sizes& bytes, char* out);

  TwoLevels* const levels_;  // Not owned.
};

}  // namespace tfhvd
