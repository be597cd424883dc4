// BlockReduce: the large reductions of one communicator in progress, in rounds.
//
// In each round every rank receives one part of a block from all ranks, reduces it, and, if all
// ranks need the result, sends it to them. Several rounds are in progress at once, also of
// consecutive reductions, so that the links never wait for one rank's arithmetic. A rank may be in
// another round than its peer: parts and results travel on separate channels, on each in the order
// of the rounds.
//
// One thread. Rounds make progress only within Advance and Wait.
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
  // A number for each round, increasing by one.
  using RoundId = int64_t;

  // The arguments of one reduction.
  struct Call {
    const char* in = nullptr;
    char* out = nullptr;
    DType dtype = DType::kFloat32;
    Reduction reduction;

    int64_t item() const { return ItemSize(dtype); }
  };

  // `transfers`: those of the communicator; Begin must have been called whenever rounds are in
  // progress. Not owned.
  explicit BlockReduce(Transfers* transfers);
  ~BlockReduce();
  BlockReduce(const BlockReduce&) = delete;
  BlockReduce& operator=(const BlockReduce&) = delete;

  // Both add rounds behind those in progress; nothing is sent before Advance.
  //
  // AddScatter: rank r gets elements [sum of counts before r, + counts[r]) of the reduction,
  // written to call.out. Input and output must not overlap.
  // AddAllReduce: every rank gets all `count`. Input and output may be the same: a part of the
  // output is written only after the same part of the input has been sent.
  void AddScatter(const Call& call, const std::vector<int64_t>& counts);
  void AddAllReduce(const Call& call, int64_t count);

  // The number of the next round to be added.
  RoundId next() const { return first_ + static_cast<RoundId>(rounds_.size()); }

  // Makes progress as far as possible without waiting.
  void Advance();

  // Waits until all rounds before `end` are over; returns false after a failure, which ends all of
  // them.
  bool Wait(RoundId end);

 private:
  struct Round {
    Call call;
    std::vector<int64_t> begins;  // of `in`, by rank, in elements
    std::vector<int64_t> counts;
    char* result = nullptr;  // the destination of this rank's elements
    bool to_all = false;     // all ranks get the result, in its place in `out`

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
  std::vector<char> scratch_;  // arriving parts, with a slot for each round ahead
  std::deque<Round> rounds_;   // in progress or to come: from first_ on
  RoundId first_ = 0;
  RoundId posted_ = 0;   // rounds before it have all their parts in transit
  RoundId reduced_ = 0;  // rounds before it are reduced
  RoundId shared_ = 0;   // rounds before it have their results in transit
};

}  // namespace tfhvd
