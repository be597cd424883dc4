#include "cc/backends/shm/shared_counter.h"

#include <sched.h>

#include <chrono>

#include "cc/backends/shm/futex.h"
#include "cc/base/cpu.h"

namespace tfhvd {
namespace {

constexpr std::chrono::milliseconds kCheck(100);

// About 30 microseconds: the other rank is usually in the same place.
constexpr int kSpins = 500;
constexpr int kYields = 20;

}  // namespace

void SharedCounter::Set(uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&value_);
}

Status SharedCounter::WaitFor(uint32_t value, int rank, Patience* patience) {
  for (int i = 0; i < kSpins; ++i) {
    if (Reached(this->value(), value)) return Status::Ok();
    CpuRelax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (Reached(this->value(), value)) return Status::Ok();
    sched_yield();
  }
  return SleepFor(value, rank, patience);
}

Status SharedCounter::SleepFor(uint32_t value, int rank, Patience* patience) {
  double waited = 0.0;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  Status status;
  while (true) {
    const uint32_t current = value_.load(std::memory_order_seq_cst);
    if (Reached(current, value)) break;
    if (FutexWait(&value_, current, kCheck)) continue;
    waited += std::chrono::duration<double>(kCheck).count();
    status = patience->StillWaiting(rank, waited);
    if (!status.ok()) break;
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

}  // namespace tfhvd
