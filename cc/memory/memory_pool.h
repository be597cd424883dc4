// MemoryPool: large blocks of host memory that are used again and again (small ones: BlockCache). A
// block fresh from the system costs a page fault for each page that is touched, together several
// times what copying the block costs; a training step asks for the same sizes each time.
//
// The pool never holds more than was in use at once at some time (of late): it gives back to the
// system what it has not handed out for longest. Any thread.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "cc/base/mutex.h"

namespace tfhvd {

class MemoryPool {
 public:
  MemoryPool() = default;
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // At least `bytes` bytes, aligned to a page, with any contents; null where the system has none.
  void* Take(size_t bytes) TFHVD_EXCLUDES(mutex_);

  // REQUIRES: `block` came from Take and is given back for the first time since.
  void Give(void* block) TFHVD_EXCLUDES(mutex_);

  // Gives all that is not in use back to the system.
  void Trim() TFHVD_EXCLUDES(mutex_);

  // Bytes in use, and not in use but kept.
  size_t used() const TFHVD_EXCLUDES(mutex_);
  size_t kept() const TFHVD_EXCLUDES(mutex_);

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  void* Find(size_t bytes) TFHVD_REQUIRES(mutex_);
  void Shrink(size_t most) TFHVD_REQUIRES(mutex_);
  void NotePeak() TFHVD_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<void*, size_t> used_ TFHVD_GUARDED_BY(mutex_);  // to bytes
  std::vector<Block> kept_ TFHVD_GUARDED_BY(mutex_);                 // longest unused first
  size_t used_bytes_ TFHVD_GUARDED_BY(mutex_) = 0;
  size_t kept_bytes_ TFHVD_GUARDED_BY(mutex_) = 0;
  // The most that was in use during this period and the one before.
  size_t peak_ TFHVD_GUARDED_BY(mutex_) = 0;
  size_t last_peak_ TFHVD_GUARDED_BY(mutex_) = 0;
  int takes_ TFHVD_GUARDED_BY(mutex_) = 0;  // of this period
};

}  // namespace tfhvd
