// The communicator over MPI. MPI only carries bytes: the algorithms are ours, made of sends and
// receives that are polled, so that reductions have the bits of every other host backend and a
// waiting rank leaves its core to the computation and can be aborted. See cc/comm/communicator.h
// for the contract; beyond it:
//
// - Abort is local: peers that wait for this rank go on waiting until they are aborted as well.
// - A call that failed may leave messages under way that MPI cannot take back: see settled().
//
//   mpi_communicator.cc  barrier, broadcast, alltoall
//   mpi_gather.cc        allgather: all at once, by doubling, around a ring
//   mpi_reduce.cc        allreduce, reducescatter: gather and reduce, or in blocks
//   mpi_block_reduce.h   ... in blocks
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cc/backends/mpi/mpi_block_reduce.h"
#include "cc/backends/mpi/mpi_transfers.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class MpiCommunicator : public Communicator {
 public:
  explicit MpiCommunicator(MpiPort port);
  ~MpiCommunicator() override;

  const char* name() const override { return "mpi"; }
  int rank() const override { return transfers_.port().rank; }
  int size() const override { return static_cast<int>(transfers_.port().members.size()); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override;
  Status StartAllReduce(const void* in, void* out, int64_t count, DType dtype,
                        const Reduction& reduction) override;
  Status FinishAllReduce() override;
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override;
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override;
  Status Barrier() override;
  void Abort(const Status& why) override;
  bool settled() override { return transfers_.Settle(); }

 private:
  using TransferId = MpiTransfers::TransferId;

  using ReduceCall = MpiBlockReduce::Call;

  // Rank `rank()` + distance, around the circle; distance may be negative.
  int Neighbour(int distance) const { return (rank() + distance + size()) % size(); }

  // Memory for messages, kept between calls; what was in it is lost.
  char* Scratch(int64_t bytes);

  // Keeps the number of transfers since `begin` that are under way below the window.
  void LimitWindow(TransferId begin);

  // The algorithms: between Begin and End of transfers_, which hold their outcome.
  void BroadcastTree(char* buffer, int64_t bytes, int root);
  void GatherDirectly(char* out, const std::vector<int64_t>& bytes);
  void GatherByDoubling(char* rotated, const std::vector<int64_t>& bytes);
  void GatherAroundRing(char* out, const std::vector<int64_t>& bytes);
  void ReduceGathered(const ReduceCall& call, int64_t count);

  MpiTransfers transfers_;
  MpiBlockReduce blocks_;
  std::deque<MpiBlockReduce::RoundId> started_;  // the ends of allreduces, the oldest first
  std::vector<char> scratch_;
};

}  // namespace tfhvd
