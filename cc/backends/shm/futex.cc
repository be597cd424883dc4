#include "cc/backends/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace tfhvd {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4,
              "a futex is a plain word");

bool FutexWait(std::atomic<uint32_t>* word, uint32_t value, std::chrono::nanoseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (std::chrono::nanoseconds left = timeout;; left = timeout - (Clock::now() - begin)) {
    const int64_t ns = std::max<int64_t>(left.count(), 0);
    const timespec t{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    const long result =
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &t, nullptr, 0);
    if (result == 0 || errno == EAGAIN) return true;
    if (errno != EINTR) return false;
  }
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tfhvd
