// MemoryPool: large blocks of host memory that are reused (small ones: BlockCache). A fresh block
// from the system costs a page fault for each page that is touched, together several times the cost
// of copying the block; and a training step needs the same sizes each time.
//
// The pool never holds more than the recent peak of memory in use: it gives the longest unused
// blocks back to the system. Any thread.
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

  // Returns at least `bytes` bytes, aligned to a page, with any contents; null if the system has no
  // memory.
  void* Take(size_t bytes) TFHVD_EXCLUDES(mutex_);

  // Takes a block back. REQUIRES: `block` came from Take and has not been given back since.
  void Give(void* block) TFHVD_EXCLUDES(mutex_);

  // Gives all unused memory back to the system.
  void Trim() TFHVD_EXCLUDES(mutex_);

  // Return the number of bytes in use, and of unused bytes that are kept.
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
  // The peak of memory in use during this period and during the last one.
  size_t peak_ TFHVD_GUARDED_BY(mutex_) = 0;
  size_t last_peak_ TFHVD_GUARDED_BY(mutex_) = 0;
  int takes_ TFHVD_GUARDED_BY(mutex_) = 0;  // of this period
};

}  // namespace tfhvd
