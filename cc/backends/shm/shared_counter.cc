#include "cc/backends/shm/shared_counter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "cc/base/cpu.h"

namespace tfhvd {
namespace {

constexpr long kCheckNanoseconds = 100 * 1000 * 1000;

// About 15 microseconds: the other rank is usually in the same place.
constexpr int kSpins = 500;
constexpr int kYields = 20;

uint32_t* Word(std::atomic<uint32_t>* a) { return reinterpret_cast<uint32_t*>(a); }

}  // namespace

void SharedCounter::Set(uint32_t value) {
  value_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, Word(&value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
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
    const timespec timeout{0, kCheckNanoseconds};
    const long woken = syscall(SYS_futex, Word(&value_), FUTEX_WAIT, current, &timeout, nullptr, 0);
    if (woken == 0) continue;
    waited += kCheckNanoseconds / 1e9;
    status = patience->StillWaiting(rank, waited);
    if (!status.ok()) break;
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

}  // namespace tfhvd
