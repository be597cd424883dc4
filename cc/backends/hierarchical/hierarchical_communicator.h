// HierarchicalCommunicator: collectives of ranks on several hosts, made of two communicators: one
// of the ranks of a host, and one of a lane's ranks, one of each host (host_layout.h). See
// cc/comm/communicator.h for the contract; beyond it:
//
// - A large reduction is divided among the lanes: the ranks of a host reduce each lane's part to
//   its rank (reducescatter), the lanes reduce their parts across hosts at the same time
//   (allreduce), and the ranks of a host put the parts together (allgather). A byte crosses the
//   network once per host, not once per rank. A small one takes one lane: fewer messages, no more
//   steps.
// - Reductions combine the ranks of each host in their order, then the hosts in the order of their
//   lowest ranks. So sums of floats may differ in the last bit from those of the flat backends; all
//   ranks hold equal bits. Nothing is rounded, divided or scaled between the levels (arithmetic.h),
//   but sums and averages of 16-bit floats: a host's sum is divided, scaled and rounded to 16 bits,
//   for half of what float32 would send across. wide_floats: it is not.
// - Data pass through staging buffers of a few MiB, piece by piece; an alltoall's through twice its
//   size.
//
//   hierarchical_communicator.cc  barrier, broadcast, allgather
//   hierarchical_reduce.cc        allreduce, reducescatter
//   hierarchical_alltoall.cc      alltoall
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cc/backends/hierarchical/host_layout.h"
#include "cc/backends/hierarchical/staging_buffers.h"
#include "cc/base/failpoints.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

struct HierarchicalOptions {
  // What a lane carries in one call. The levels work side by side on several pieces.
  int64_t piece_bytes = 4 << 20;
  // Up to so many bytes, one lane carries everything.
  int64_t small_bytes = 16 << 10;
  // Whether sums of 16-bit floats stay float32 until all hosts' are added up.
  bool wide_floats = false;
  Failpoints failpoints = {};
};

class HierarchicalCommunicator : public Communicator {
 public:
  // `local`: all ranks of this host, in their order. `across`: the ranks of this rank's lane, in
  // the order of hosts; nullptr where layout.local_of[rank] >= layout.lanes.
  HierarchicalCommunicator(HostLayout layout, int rank, std::unique_ptr<Communicator> local,
                           std::unique_ptr<Communicator> across, HierarchicalOptions options = {});
  ~HierarchicalCommunicator() override;

  const char* name() const override { return "hierarchical"; }
  int rank() const override { return rank_; }
  int size() const override { return layout_.size(); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override;
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override;
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override;
  Status Barrier() override;
  Status Poll() override;
  void Abort(const Status& why) override;
  bool settled() override;
  void SetWaitMonitor(WaitMonitor* monitor) override;

 private:
  using Sizes = std::vector<int64_t>;

  // What one reduction needs to know all along.
  struct ReduceCall {
    DType dtype;
    DType between;  // the type of what lies between the levels
    Reduction reduction;
    Reduction within;  // how the ranks of a host combine their values
    bool completed;    // whether a host's values are divided and scaled within it

    bool wider() const { return between != dtype; }
    int64_t item() const { return ItemSize(dtype); }
    int64_t wide_item() const { return ItemSize(between); }
  };
  ReduceCall MakeCall(DType dtype, const Reduction& reduction) const;
  // Of what the hosts have combined makes the result, in place.
  void Complete(const ReduceCall& call, char* values, int64_t count) const;

  char* Get(StagingBuffers::Buffer buffer, int64_t bytes) { return staging_->Get(buffer, bytes); }
  static void Copy(void* to, const void* from, int64_t bytes);
  static void Pack(const char* block, int64_t bytes, char** to);

  int host() const { return host_; }
  int local_rank() const { return local_->rank(); }
  bool in_lane() const { return across_ != nullptr; }
  // Whether ranks of this host send by way of another's lane.
  bool crowded() const { return local_->size() > layout_.lanes; }

  // The parts of `count` items that the local ranks answer for, `lanes` of them.
  Sizes Divide(int64_t count, int lanes) const;
  // So many items of each rank's block pass through a buffer at once.
  int64_t BlockPiece(int64_t item) const;
  // For every rank, what a piece that begins at `done` holds of its `sizes`.
  static Sizes PieceOf(const Sizes& sizes, int64_t done, int64_t most);
  // What the ranks of each host in one lane have of `sizes`.
  Sizes ByHost(const Sizes& sizes, int lane) const;

  Status BroadcastPiece(char* buffer, int64_t bytes, int root, int lanes);
  Status GatherPiece(const char* own, const Sizes& bytes, const std::vector<char*>& addresses);
  Status CollectLane(const char* own, const Sizes& bytes, const char** collected);
  // A piece of an allreduce, between the two levels.
  struct Piece {
    Sizes counts;          // elements of the parts, by local rank
    char* part = nullptr;  // this rank's
    char* out = nullptr;   // where the whole piece goes
    bool started = false;  // whether the part is in an allreduce of the lane
  };
  // So many pieces cross the network, or wait for it, at once.
  static constexpr size_t kPiecesAcross = 3;
  Status ReducePieces(const ReduceCall& call, const char* in, char* out, int64_t count,
                      std::deque<Piece>* across);
  Status ReduceWithin(const ReduceCall& call, const char* in, const Piece& piece);
  Status StartAcross(const ReduceCall& call, Piece* piece);
  Status FinishPiece(const ReduceCall& call, std::deque<Piece>* across);
  Status ReduceWideAcross(const ReduceCall& call, char* part, int64_t count);
  Status ScatterPiece(const ReduceCall& call, const std::vector<const char*>& blocks,
                      const Sizes& counts, char* out);
  Status HandOut(const char* results, const Sizes& bytes, char* out);

  struct Traffic;  // of an alltoall
  Status LearnTraffic(const Sizes& send_bytes, const Sizes& recv_bytes, Traffic* traffic);
  Status HandToLanes(const char* in, const Sizes& send_bytes, const Traffic& traffic);
  Status ExchangeLanes(const Traffic& traffic);
  Status TakeFromLanes(const Traffic& traffic, char* out, const Sizes& recv_bytes);

  const HostLayout layout_;
  const int rank_;
  const int host_;
  const std::unique_ptr<Communicator> local_;
  const std::unique_ptr<Communicator> across_;
  const HierarchicalOptions options_;
  std::unique_ptr<StagingBuffers> staging_;
};

}  // namespace tfhvd
