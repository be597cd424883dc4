// ShmCommunicator: collectives of ranks on one host through shared memory.
//
// The allreduces are ShmAllReduce's; all calls share the exchanges of ShmBlocks.
#pragma once

#include <memory>
#include <vector>

#include "cc/backends/shm/abort_note.h"
#include "cc/backends/shm/exchange.h"
#include "cc/backends/shm/shared_memory.h"
#include "cc/backends/shm/shm_allreduce.h"
#include "cc/backends/shm/shm_blocks.h"
#include "cc/backends/shm/shm_options.h"
#include "cc/backends/shm/store_choice.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

// Makes a communicator over the ranks of `host`, which must all be on one host; they find each
// other's memory through it. Collective. It takes a page for each slot, and as much as `options`
// say once a call needs it. All ranks get a communicator, or all get the same kind of error
// (kUnavailable if memory cannot be shared).
Status MakeShmCommunicator(Communicator* host, const ShmOptions& options,
                           std::unique_ptr<Communicator>* out);

class ShmCommunicator : public Communicator, private PeerWaitMonitor {
 public:
  static int64_t SizeFor(int ranks, const ShmOptions& options);
  // Returns the parts of it that a rank must reserve.
  static std::vector<SharedMemory::Part> PartsOf(int rank, int ranks, const ShmOptions& options);

  // `memory` is zeroed at first, mapped by all ranks, and reserved.
  ShmCommunicator(std::shared_ptr<SharedMemory> memory, int rank, int ranks,
                  const ShmOptions& options);

  const char* name() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return ranks_; }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override;
  Status AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                        const Reduction& reduction) override;
  bool takes_spans(int64_t bytes) const override { return all_reduce_.is_direct(bytes); }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override;
  Status Broadcast(void* buffer, int64_t bytes, int root) override;
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override;
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override;
  Status Barrier() override;
  bool prompt() const override { return true; }
  // Returns whether no rank has aborted the collectives.
  Status Poll() override { return note_->Read(); }
  void Abort(const Status& why) override;

 private:
  int JobRank(int rank) const;
  Status OnPeerWait(int rank, double waited_seconds) override;
  template <typename Fill, typename Take>
  Status ByLanes(int64_t most, const Fill& fill, const Take& take);

  const std::shared_ptr<SharedMemory> memory_;
  const int rank_;
  const int ranks_;
  const ShmOptions options_;
  AbortNote* const note_;  // in shared memory
  ShmBlocks blocks_;
  ShmAllReduce all_reduce_;
  // How to write blocks of each kind: the kinds differ in the time of each way.
  StoreChoice gathered_;
  StoreChoice broadcast_;
  StoreChoice in_lanes_;
};

}  // namespace tfhvd
