// TransferCommunicator: the communicator over messages of MPI or TCP. MPI and TCP only carry bytes:
// the algorithms are tfhvd's, made of sends and receives that are polled. So reductions have the
// bits of every other host backend, and a waiting rank leaves its core to the computation and can
// be aborted. See cc/comm/communicator.h for the contract; in addition:
//
// - Abort is local: peers that wait for this rank continue to wait until they are aborted, too.
// - A failed call may leave messages in transit that cannot be taken back: see settled().
//
//   gathers.h          allgathers: all at once, by doubling, around a ring
//   gathered_reduce.h  small reductions: gathered, and reduced by every rank
//   gather_choice.h    which reductions are small
//   block_reduce.h     large ones, in blocks
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cc/collectives/transfer/block_reduce.h"
#include "cc/collectives/transfer/gathered_reduce.h"
#include "cc/collectives/transfer/gathers.h"
#include "cc/collectives/transfer/scratch_buffer.h"
#include "cc/collectives/transfer/transfers.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class TransferCommunicator : public Communicator {
 public:
  explicit TransferCommunicator(std::unique_ptr<Transfers> transfers);
  ~TransferCommunicator() override;

  const char* name() const override { return transfers_->name(); }
  int rank() const override { return transfers_->rank(); }
  int size() const override { return transfers_->size(); }

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
  bool settled() override { return transfers_->Settle(); }

 private:
  using TransferId = Transfers::TransferId;

  using ReduceCall = BlockReduce::Call;

  // Keeps the number of transfers in progress since `begin` below the window.
  void LimitWindow(TransferId begin);

  // Between Begin and End of transfers_; End returns errors.
  void BroadcastTree(char* buffer, int64_t bytes, int root);

  const std::unique_ptr<Transfers> transfers_;
  BlockReduce blocks_;
  ScratchBuffer scratch_;
  Gathers gathers_;
  GatheredReduce gathered_;
  std::deque<BlockReduce::RoundId> started_;  // the ends of allreduces, the oldest first
};

}  // namespace tfhvd
