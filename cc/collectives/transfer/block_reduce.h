// BlockReduce: the large reductions of one communicator that are under way, in rounds.
//
// In each round every rank gets one part of a block from all ranks, reduces it, and, where all are
// to have the result, sends it to them. Several rounds are under way at once, also of reductions
// that follow each other, so that the links never wait for one rank's arithmetic. A rank may be in
// another round than its peer: parts and results travel on channels of their own, on each in the
// order of the rounds.
//
// One thread. Rounds go on within Advance and Wait alone.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cc/base/types.h"
#include "cc/collectives/transfer/transfers.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {

class BlockReduce {
 public:
  // A number for each round, counting up by one.
  using RoundId = int64_t;

  // What one reduction needs to know all along.
  struct Call {
    const char* in = nullptr;
    char* out = nullptr;
    DType dtype = DType::kFloat32;
    Reduction reduction;

    int64_t item() const { return ItemSize(dtype); }
  };

  // `transfers`: those of the communicator, for which Begin has been called whenever rounds are
  // under way. Not owned.
  explicit BlockReduce(Transfers* transfers);
  ~BlockReduce();
  BlockReduce(const BlockReduce&) = delete;
  BlockReduce& operator=(const BlockReduce&) = delete;

  // Both add rounds behind those that are under way; nothing is sent before Advance.
  //
  // AddScatter: rank r gets elements [sum of counts before r, + counts[r]) of the reduction, from
  // call.out on. Input and output do not overlap.
  // AddAllReduce: every rank gets all `count`. Input and output may be the same: a part of the
  // output is written only after the same part of the input has been sent.
  void AddScatter(const Call& call, const std::vector<int64_t>& counts);
  void AddAllReduce(const Call& call, int64_t count);

  // The round that is added next.
  RoundId next() const { return first_ + static_cast<RoundId>(rounds_.size()); }

  // Goes on as far as nothing has to be waited for.
  void Advance();

  // Waits until all rounds before `end` are over; false after a failure, which ends all of them.
  bool Wait(RoundId end);

 private:
  struct Round {
    Call call;
    std::vector<int64_t> begins;  // of `in`, by rank, in elements
    std::vector<int64_t> counts;
    char* result = nullptr;  // where this rank's elements go
    bool to_all = false;     // whether all ranks get the result, where it lies in `out`

    std::vector<Transfers::TransferId> parts;  // by distance from this rank: receive, send
    std::vector<Transfers::TransferId> results;
  };

  int rank() const { return transfers_->rank(); }
  int size() const { return transfers_->size(); }
  int Neighbour(int distance) const { return (rank() + distance + size()) % size(); }
  Round& At(RoundId id) { return rounds_[static_cast<size_t>(id - first_)]; }
  char* ScratchOf(RoundId id);

  template <typename Post>
  bool PostToAll(std::vector<Transfers::TransferId>* ids, const Post& post);
  bool PostParts(RoundId id);
  bool PostResults(Round* round);
  bool AllDone(const std::vector<Transfers::TransferId>& ids) const;
  void Reduce(RoundId id);

  Transfers* const transfers_;
  const int64_t part_bytes_;
  const int64_t rounds_ahead_;
  std::vector<char> scratch_;  // what arrives, a slot for each round ahead
  std::deque<Round> rounds_;   // under way or to come: from first_ on
  RoundId first_ = 0;
  RoundId posted_ = 0;   // rounds before it have all their parts under way
  RoundId reduced_ = 0;  // rounds before it are reduced
  RoundId shared_ = 0;   // rounds before it have their results under way
};

}  // namespace tfhvd
