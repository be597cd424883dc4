#include "cc/backends/shm/exchange.h"

namespace tfhvd {

int64_t Exchange::SizeFor(int ranks, int64_t slot_bytes) {
  return SlotsOf(ranks, ranks, slot_bytes);
}

int64_t Exchange::SlotsOf(int rank, int ranks, int64_t slot_bytes) {
  const int64_t counters = ranks * static_cast<int64_t>(sizeof(Counters));
  return (counters + kPage - 1) / kPage * kPage + rank * 2 * slot_bytes;
}

Exchange::Exchange(char* memory, int rank, int ranks, int64_t slot_bytes, PeerWaitMonitor* monitor)
    : counters_(reinterpret_cast<Counters*>(memory)),
      slots_(memory + SlotsOf(0, ranks, slot_bytes)),
      rank_(rank),
      ranks_(ranks),
      slot_bytes_(slot_bytes),
      monitor_(monitor) {}

Status Exchange::Claim(uint32_t round, char** slot) {
  for (int r = 0; r < ranks_; ++r) {
    // Waits until all are done with round - 2; before the second round there is nothing to wait
    // for.
    if (r != rank_) TFHVD_RETURN_IF_ERROR(counters_[r].done.WaitFor(round - 1, r, monitor_));
  }
  *slot = Slot(round, rank_);
  return Status::Ok();
}

void Exchange::WakeEveryone() {
  for (int r = 0; r < ranks_; ++r) {
    counters_[r].posted.WakeSleepers();
    counters_[r].done.WakeSleepers();
  }
}

Status Exchange::Read(uint32_t round, int rank, const char** slot) {
  if (rank != rank_)
    TFHVD_RETURN_IF_ERROR(counters_[rank].posted.WaitFor(round + 1, rank, monitor_));
  *slot = Slot(round, rank);
  return Status::Ok();
}

}  // namespace tfhvd
