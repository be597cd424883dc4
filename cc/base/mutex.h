// Mutex and condition variable with clang's thread-safety annotations: a field says which lock
// guards it, and the compiler checks it. For other compilers the annotations are empty.
#pragma once

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

#if defined(__clang__)
#define TFHVD_ANNOTATION(x) __attribute__((x))
#else
#define TFHVD_ANNOTATION(x)
#endif
#define TFHVD_CAPABILITY(x) TFHVD_ANNOTATION(capability(x))
#define TFHVD_SCOPED_CAPABILITY TFHVD_ANNOTATION(scoped_lockable)
#define TFHVD_GUARDED_BY(x) TFHVD_ANNOTATION(guarded_by(x))
#define TFHVD_REQUIRES(...) TFHVD_ANNOTATION(requires_capability(__VA_ARGS__))
#define TFHVD_ACQUIRE(...) TFHVD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TFHVD_TRY_ACQUIRE(...) TFHVD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TFHVD_RELEASE(...) TFHVD_ANNOTATION(release_capability(__VA_ARGS__))
#define TFHVD_EXCLUDES(...) TFHVD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define TFHVD_NO_THREAD_SAFETY_ANALYSIS TFHVD_ANNOTATION(no_thread_safety_analysis)

namespace tfhvd {

class TFHVD_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() TFHVD_ACQUIRE() { mutex_.lock(); }
  // REQUIRES: this thread does not hold the mutex.
  bool TryLock() TFHVD_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() TFHVD_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// A lock for a few instructions, at half of a Mutex's cost. A thread that finds it taken yields
// until it is free, so its holder must not wait for anything.
class TFHVD_CAPABILITY("mutex") SpinLock {
 public:
  SpinLock() = default;
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;

  void Lock() TFHVD_ACQUIRE() {
    while (taken_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  void Unlock() TFHVD_RELEASE() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

// Holds a lock during its lifetime.
template <typename Lock>
class TFHVD_SCOPED_CAPABILITY LockHolder {
 public:
  explicit LockHolder(Lock* lock) TFHVD_ACQUIRE(lock) : lock_(lock) { lock_->Lock(); }
  ~LockHolder() TFHVD_RELEASE() { lock_->Unlock(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;

 private:
  Lock* const lock_;  // Not owned.
};

using MutexLock = LockHolder<Mutex>;
using SpinLockHolder = LockHolder<SpinLock>;

// Wait may return early: callers loop over their condition. Timeouts do not depend on the wall
// clock. The class uses pthreads itself, because std::condition_variable waits either by the wall
// clock or with pthread_cond_clockwait, which older C libraries lack and the ThreadSanitizer of
// older compilers does not know.
class CondVar {
 public:
  CondVar() {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&cv_, &monotonic);
    pthread_condattr_destroy(&monotonic);
  }
  ~CondVar() { pthread_cond_destroy(&cv_); }
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) TFHVD_REQUIRES(mutex) TFHVD_NO_THREAD_SAFETY_ANALYSIS {
    pthread_cond_wait(&cv_, mutex->mutex_.native_handle());
  }
  void WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout)
      TFHVD_REQUIRES(mutex) TFHVD_NO_THREAD_SAFETY_ANALYSIS {
    constexpr int64_t kSecond = 1000000000;
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t left = std::max<int64_t>(timeout.count(), 0);
    const int64_t ns = until.tv_nsec + left % kSecond;
    until.tv_sec += static_cast<time_t>(left / kSecond + ns / kSecond);
    until.tv_nsec = static_cast<long>(ns % kSecond);
    pthread_cond_timedwait(&cv_, mutex->mutex_.native_handle(), &until);
  }
  void NotifyOne() { pthread_cond_signal(&cv_); }
  void NotifyAll() { pthread_cond_broadcast(&cv_); }

 private:
  pthread_cond_t cv_;
};

}  // namespace tfhvd
