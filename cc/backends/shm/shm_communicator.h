// ShmCommunicator: collectives of ranks on one host through shared memory.
//
// Large reductions are divided into blocks. Every rank reduces one part of each block, for all
// ranks: the ranks post their values (first exchange), each reduces its part and posts the result
// (second exchange), and each copies the others' results out. These three steps overlap for
// consecutive blocks, so that ranks rarely wait for each other. Small reductions, and all
// reductions of two ranks, take one exchange: every rank reduces everything.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/backends/shm/abort_note.h"
#include "cc/backends/shm/exchange.h"
#include "cc/backends/shm/shared_memory.h"
#include "cc/backends/shm/slot_writer.h"
#include "cc/backends/shm/store_choice.h"
#include "cc/backends/shm/timed_block.h"
#include "cc/base/failpoints.h"
#include "cc/base/log.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

struct ShmOptions {
  // Two slots for each rank and exchange fit into a core's cache and still keep the memory bus
  // busy.
  int64_t slot_bytes = 256 << 10;
  // For a reduction in one exchange: values stay in the near cache of the writing core until the
  // other rank reads them.
  int64_t block_bytes = 128 << 10;
  // How to write the values for others; nullopt: as StoreChoice finds out.
  std::optional<StoreIn> stores;
  // An allreduce's result of at least so many bytes, not written over the input, bypasses the
  // caches: from this size on that is not slower even if the result is read at once, and in a step
  // other results come first.
  int64_t result_past_caches = 1 << 20;
  Log log;
  Failpoints failpoints;
  std::vector<int> job_ranks;  // the ranks' numbers in the job, for messages; empty: the same
};

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
  bool takes_spans(int64_t bytes) const override { return IsDirect(bytes); }
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
  struct Block;  // a reduction's block in flight

  // The number of ranks up to which every rank reduces everything. With two, each would otherwise
  // read half of the other's values and half of its results; this way it reads all of the other's
  // values.
  static constexpr int kFewRanks = 2;

  int JobRank(int rank) const;
  Status OnPeerWait(int rank, double waited_seconds) override;
  TimedBlock NewBlock(StoreChoice* choice, int64_t bytes) const;
  void CopyIn(char* slot, const char* from, int64_t bytes, StoreIn stores);
  bool IsDirect(int64_t bytes) const;
  Status DirectAllReduce(const Span* spans, int64_t bytes, DType dtype, const Reduction& reduction,
                         StoreIn store);
  template <typename Fill, typename Take>
  Status ByLanes(int64_t most, const Fill& fill, const Take& take);
  Status PostValues(Block* block);
  Status ReducePart(Block* block, DType dtype, const Reduction& reduction);
  Status CopyResults(Block* block);

  const std::shared_ptr<SharedMemory> memory_;
  const int rank_;
  const int ranks_;
  const ShmOptions options_;
  AbortNote* const note_;             // in shared memory
  std::vector<const char*> from_;     // by rank: the source of a step; kept to save allocations
  std::vector<const void*> sources_;  // likewise for ReduceRanks
  // How to write blocks of each kind: the kinds differ in the time of each way.
  StoreChoice in_one_;  // reductions in one exchange
  StoreChoice in_two_;
  StoreChoice gathered_;
  StoreChoice broadcast_;
  StoreChoice in_lanes_;
  SlotWriter::Near near_;
  Exchange values_;
  Exchange results_;
  uint32_t value_round_ = 0;
  uint32_t result_round_ = 0;
};

}  // namespace tfhvd
