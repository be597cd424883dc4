// Mutex and condition variable with clang's thread-safety annotations, so that a field says which
// lock guards it and the compiler holds us to it. Elsewhere the annotations are empty.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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
  // REQUIRES: this thread does not hold it.
  bool TryLock() TFHVD_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() TFHVD_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// A lock for a few instructions, at half of a Mutex's cost. Who finds it taken lets others run
// until it is free: whoever holds it must not wait for anything.
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

// Holds a lock for as long as it lives.
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

// Wait may return early: callers loop over their condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) TFHVD_REQUIRES(mutex) TFHVD_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  void WaitFor(Mutex* mutex, std::chrono::nanoseconds timeout)
      TFHVD_REQUIRES(mutex) TFHVD_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    // The system clock's wait: ThreadSanitizer knows pthread_cond_timedwait, not _clockwait.
    cv_.wait_until(lock, std::chrono::system_clock::now() + timeout);
    lock.release();
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace tfhvd
