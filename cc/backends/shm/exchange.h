// Exchange: how ranks of one host pass blocks through shared memory. Each rank has two slots. In
// round t a rank posts a block in slot t % 2, reads what it wants of the others' slots, and says
// that it is done; it may post round t + 2 only after all are done with round t, so nothing is
// overwritten that somebody still reads.
//
// All ranks take the same rounds. One thread a rank.
#pragma once

#include <cstdint>

#include "cc/backends/shm/shared_counter.h"
#include "cc/base/status.h"

namespace tfhvd {

class Exchange {
 public:
  // What a slot is divided into begins on a cache line.
  static constexpr int64_t kLine = 64;
  // Slots begin on pages, for a page lies on one NUMA node.
  static constexpr int64_t kPage = 4096;

  // The bytes of shared memory that an exchange takes.
  static int64_t SizeFor(int ranks, int64_t slot_bytes);
  // Where a rank's slots begin in it; it alone writes them. Before the first rank's lies what all
  // write.
  static int64_t SlotsOf(int rank, int ranks, int64_t slot_bytes);

  // `memory` is zeroed, aligned to 64 bytes, and outlives this object, as does `monitor`.
  Exchange(char* memory, int rank, int ranks, int64_t slot_bytes, PeerWaitMonitor* monitor);

  int64_t slot_bytes() const { return slot_bytes_; }

  // This rank's slot for round `round`, once nobody reads it any more.
  Status Claim(uint32_t round, char** slot);
  // What was claimed is complete.
  void Post(uint32_t round) { counters_[rank_].posted.Set(round + 1); }

  // Rank `rank`'s block of round `round`, once it has been posted.
  Status Read(uint32_t round, int rank, const char** slot);
  // This rank has read all that it wants of round `round`.
  void Done(uint32_t round) { counters_[rank_].done.Set(round + 1); }

  // Ends every rank's sleep, so that each asks its monitor. Any thread.
  void WakeEveryone();

 private:
  struct Counters {
    SharedCounter posted;  // rounds
    SharedCounter done;
  };
  char* Slot(uint32_t round, int rank) const {
    return slots_ + (static_cast<int64_t>(rank) * 2 + round % 2) * slot_bytes_;
  }

  Counters* const counters_;  // by rank, in shared memory
  char* const slots_;
  const int rank_;
  const int ranks_;
  const int64_t slot_bytes_;
  PeerWaitMonitor* const monitor_;  // Not owned.
};

}  // namespace tfhvd
