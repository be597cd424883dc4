// Waker: lets one thread sleep until another wakes it. A wake-up without a sleeper ends the next
// sleep at once, so that no wake-up is missed.
//
// Any thread may call Wake, one thread WaitFor.
#pragma once

#include <chrono>

#include "cc/base/mutex.h"

namespace tfhvd {

class Waker {
 public:
  void Wake() TFHVD_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    woken_ = true;
    if (waiting_) changed_.NotifyOne();
  }

  // Sleeps until Wake, or `timeout`.
  void WaitFor(std::chrono::nanoseconds timeout) TFHVD_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    waiting_ = true;
    while (!woken_) {
      const auto left = deadline - std::chrono::steady_clock::now();
      if (left.count() <= 0) break;
      changed_.WaitFor(&mutex_, left);
    }
    waiting_ = false;
    woken_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ TFHVD_GUARDED_BY(mutex_) = false;
  bool waiting_ TFHVD_GUARDED_BY(mutex_) = false;
};

}  // namespace tfhvd
