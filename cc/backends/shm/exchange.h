// Exchange: how ranks of one host pass blocks through shared memory. Each rank has two slots. In
// round t a rank posts a block in slot t % 2, reads from the others' slots, and declares that it is
// done. It may post round t + 2 only after all are done with round t, so that it overwrites nothing
// that another rank still reads.
//
// All ranks run the same rounds. One thread for each rank.
#pragma once

#include <cstdint>

#include "cc/backends/shm/shared_counter.h"
#include "cc/base/status.h"

namespace tfhvd {

class Exchange {
 public:
  // The parts of a slot begin on cache lines.
  static constexpr int64_t kLine = 64;
  // Slots begin on pages, because each page is on one NUMA node.
  static constexpr int64_t kPage = 4096;

  // Returns the bytes of shared memory that an exchange needs.
  static int64_t SizeFor(int ranks, int64_t slot_bytes);
  // Returns where a rank's slots begin in that memory; only this rank writes them. The memory
  // before the first rank's slots is written by all ranks.
  static int64_t SlotsOf(int rank, int ranks, int64_t slot_bytes);

  // `memory` is zeroed and aligned to 64 bytes. It and `monitor` must outlive this object.
  Exchange(char* memory, int rank, int ranks, int64_t slot_bytes, PeerWaitMonitor* monitor);

  int64_t slot_bytes() const { return slot_bytes_; }

  // Returns this rank's slot for round `round`, once no rank reads it any more.
  Status Claim(uint32_t round, char** slot);
  // Declares that the claimed slot is complete.
  void Post(uint32_t round) { counters_[rank_].posted.Set(round + 1); }

  // Returns rank `rank`'s block of round `round`, once it is posted.
  Status Read(uint32_t round, int rank, const char** slot);
  // Declares that this rank has read everything that it needs of round `round`.
  void Done(uint32_t round) { counters_[rank_].done.Set(round + 1); }

  // Ends every rank's sleep, so that each calls its monitor. Any thread.
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
