// ShmBlocks: what the collectives of a rank through shared memory share: the exchanges with their
// rounds, and how a block is written for others.
//
// Every rank takes the same rounds in the same order. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/backends/shm/exchange.h"
#include "cc/backends/shm/slot_writer.h"
#include "cc/backends/shm/store_choice.h"
#include "cc/backends/shm/timed_block.h"

namespace tfhvd {

struct ShmBlocks {
  // `memory`: of both exchanges, one after the other. `stores`: how to write blocks; nullopt: as
  // the block's StoreChoice finds out.
  ShmBlocks(char* memory, int own_rank, int all_ranks, int64_t slot_bytes,
            std::optional<StoreIn> how, PeerWaitMonitor* monitor)
      : rank(own_rank),
        ranks(all_ranks),
        stores(how),
        from(static_cast<size_t>(all_ranks)),
        sources(static_cast<size_t>(all_ranks)),
        values(memory, own_rank, all_ranks, slot_bytes, monitor),
        results(memory + Exchange::SizeFor(all_ranks, slot_bytes), own_rank, all_ranks, slot_bytes,
                monitor) {}

  TimedBlock NewBlock(StoreChoice* choice, int64_t bytes) const {
    return stores.has_value() ? TimedBlock(*stores) : TimedBlock(choice, bytes);
  }
  void CopyIn(char* slot, const char* data, int64_t bytes, StoreIn store) {
    SlotWriter writer(slot, store, &near);
    writer.Add(data, bytes);
    writer.End();
  }

  const int rank;
  const int ranks;
  const std::optional<StoreIn> stores;
  std::vector<const char*> from;     // by rank: the source of a step; kept to save allocations
  std::vector<const void*> sources;  // likewise for ReduceRanks
  SlotWriter::Near near;
  Exchange values;
  Exchange results;
  uint32_t value_round = 0;
  uint32_t result_round = 0;
};

}  // namespace tfhvd
