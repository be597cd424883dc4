#include "cc/backends/shm/shared_counter.h"

#include <sched.h>

#include "cc/backends/shm/futex.h"
#include "cc/comm/wait_monitor.h"
#include "cc/numeric/cpu.h"

namespace tfhvd {
namespace {

// About 30 microseconds: the other rank is usually about as far.
constexpr int kSpins = 500;
constexpr int kYields = 20;

}  // namespace

void SharedCounter::Set(uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&value_);
}

Status SharedCounter::WaitFor(uint32_t value, int rank, PeerWaitMonitor* monitor) {
  for (int i = 0; i < kSpins; ++i) {
    if (Reached(this->value(), value)) return Status::Ok();
    CpuRelax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (Reached(this->value(), value)) return Status::Ok();
    sched_yield();
  }
  return SleepFor(value, rank, monitor);
}

Status SharedCounter::SleepFor(uint32_t value, int rank, PeerWaitMonitor* monitor) {
  WaitPacer pacer;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  while (status.ok()) {
    const uint32_t current = value_.load(std::memory_order_seq_cst);
    if (Reached(current, value)) break;
    const bool woken = FutexWait(&value_, current, pacer.interval());
    // A wake-up without a new value means that a rank has ended the collective.
    const bool ended = woken && value_.load(std::memory_order_seq_cst) == current;
    if (ended || pacer.Due()) status = monitor->OnPeerWait(rank, pacer.waited());
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

void SharedCounter::WakeSleepers() { FutexWakeAll(&value_); }

}  // namespace tfhvd
