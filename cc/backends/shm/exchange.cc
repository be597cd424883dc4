#include "cc/backends/shm/exchange.h"

namespace tfhvd {

int64_t Exchange::SizeFor(int ranks, int64_t slot_bytes) {
  return ranks * (static_cast<int64_t>(sizeof(Counters)) + 2 * slot_bytes);
}

Exchange::Exchange(char* memory, int rank, int ranks, int64_t slot_bytes, PeerWaitMonitor* monitor)
    : counters_(reinterpret_cast<Counters*>(memory)),
      slots_(memory + ranks * sizeof(Counters)),
      rank_(rank),
      ranks_(ranks),
      slot_bytes_(slot_bytes),
      monitor_(monitor) {}

Status Exchange::Claim(uint32_t turn, char** slot) {
  for (int r = 0; r < ranks_; ++r) {
    // All are done with turn - 2; before the second turn there is nothing to wait for.
    if (r != rank_) TFHVD_RETURN_IF_ERROR(counters_[r].done.WaitFor(turn - 1, r, monitor_));
  }
  *slot = Slot(turn, rank_);
  return Status::Ok();
}

void Exchange::WakeEveryone() {
  for (int r = 0; r < ranks_; ++r) {
    counters_[r].posted.WakeSleepers();
    counters_[r].done.WakeSleepers();
  }
}

Status Exchange::Read(uint32_t turn, int rank, const char** slot) {
  if (rank != rank_)
    TFHVD_RETURN_IF_ERROR(counters_[rank].posted.WaitFor(turn + 1, rank, monitor_));
  *slot = Slot(turn, rank);
  return Status::Ok();
}

}  // namespace tfhvd
