// HierarchicalReduce: the allreduce and the reducescatter of ranks on several hosts, in two levels.
// hierarchical_communicator.h describes the order in which values are combined, and their types.
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
  // `levels` must outlive this object.
  explicit HierarchicalReduce(TwoLevels* levels) : levels_(levels) {}

  // See Communicator.
  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction);
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction);

 private:
  using Sizes = TwoLevels::Sizes;

  // The settings of one reduction.
  struct Call {
    DType dtype;
    DType between;  // the type of values between the levels
    Reduction reduction;
    Reduction within;  // how the ranks of a host combine their values
    bool completed;    // a host's values are divided and scaled within it

    bool wider() const { return between != dtype; }
    int64_t item() const { return ItemSize(dtype); }
    int64_t wide_item() const { return ItemSize(between); }
  };
  Call MakeCall(DType dtype, const Reduction& reduction) const;
  // Turns the values that the hosts have combined into the result, in place.
  void Complete(const Call& call, char* values, int64_t count) const;

  // A piece of an allreduce, between the two levels.
  struct Piece {
    Sizes counts;          // elements of the parts, by local rank
    char* part = nullptr;  // this rank's
    char* out = nullptr;   // the place of the whole piece
    bool started = false;  // the part is in an allreduce of the lane
  };
  // The number of pieces that cross the network, or wait for it, at once.
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
