// HierarchicalCommunicator: collectives of ranks on several hosts, made of two communicators: one
// of the ranks of a host, and one of a lane's ranks, with one rank of each host (host_layout.h).
// See cc/comm/communicator.h for the contract; in addition:
//
// - A large reduction is divided among the lanes: the ranks of a host reduce each lane's part to
//   its rank (reducescatter), the lanes reduce their parts across hosts at the same time
//   (allreduce), and the ranks of a host combine the parts (allgather). A byte crosses the network
//   once per host, not once per rank. A small reduction takes one lane: fewer messages, no more
//   steps.
// - Reductions combine the ranks of each host in their order, then the hosts in the order of their
//   lowest ranks. So sums of floats may differ in the last bit from those of the flat backends; all
//   ranks hold equal bits. Nothing is rounded, divided or scaled between the levels (arithmetic.h),
//   except sums and averages of 16-bit floats: a host's sum is divided, scaled and rounded to 16
//   bits, so that half of the bytes of float32 cross the network. wide_floats turns that off.
// - Data pass through staging buffers of a few MiB, piece by piece; those of an alltoall through
//   buffers of twice its size.
//
//   hierarchical_reduce.h    allreduce, reducescatter
//   hierarchical_exchange.h  alltoall
//   two_levels.h             the two communicators and the buffers that they share
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/collectives/hierarchical/hierarchical_exchange.h"
#include "cc/collectives/hierarchical/hierarchical_reduce.h"
#include "cc/collectives/hierarchical/host_layout.h"
#include "cc/collectives/hierarchical/two_levels.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class HierarchicalCommunicator : public Communicator {
 public:
  // `local`: all ranks of this host, in their order. `across`: the ranks of this rank's lane, in
  // the order of hosts; nullptr if layout.local_of[rank] >= layout.lanes.
  HierarchicalCommunicator(HostLayout layout, int rank, std::unique_ptr<Communicator> local,
                           std::unique_ptr<Communicator> across, HierarchicalOptions options = {});

  const char* name() const override { return "hierarchical"; }
  int rank() const override { return levels_.rank(); }
  int size() const override { return levels_.size(); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override {
    return reduce_.AllReduce(in, out, count, dtype, reduction);
  }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override {
    return reduce_.ReduceScatter(in, out, counts, dtype, reduction);
  }
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override {
    return exchange_.AllToAll(in, send_bytes, out, recv_bytes);
  }
  Status Barrier() override;
  Status Poll() override;
  void Abort(const Status& why) override;
  bool settled() override { return levels_.settled(); }
  void SetWaitMonitor(WaitMonitor* monitor) override;

 private:
  using Sizes = TwoLevels::Sizes;

  Status BroadcastPiece(char* buffer, int64_t bytes, int root, int lanes);
  Status GatherPiece(const char* own, const Sizes& bytes, const std::vector<char*>& addresses);
  Status CollectLane(const char* own, const Sizes& bytes, const char** collected);

  TwoLevels levels_;
  HierarchicalReduce reduce_;
  HierarchicalExchange exchange_;
};

}  // namespace tfhvd
