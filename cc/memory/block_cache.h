// BlockCache: small blocks of host memory that are reused. Blocks of nearly equal size form one
// list, so that taking or giving a block moves one pointer. A general allocator searches, splits
// and merges, and needs twice as long for blocks that are aligned and that another thread gives
// back.
//
// Any thread.
#pragma once

#include <array>
#include <cstddef>

#include "cc/base/mutex.h"

namespace tfhvd {

class BlockCache {
 public:
  // Larger blocks come from MemoryPool.
  static constexpr size_t kLargest = 256 << 10;
  static constexpr size_t kAlignment = 64;

  // The cache keeps at most so many unused bytes.
  static constexpr size_t kMostKept = 32 << 20;

  BlockCache() = default;
  ~BlockCache() { Trim(); }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Returns at least `bytes` bytes, aligned to kAlignment, with any contents; null if the system
  // has no memory. REQUIRES: bytes <= kLargest.
  void* Take(size_t bytes) TFHVD_EXCLUDES(lock_);

  // Takes a block back. REQUIRES: `block` came from Take(bytes) and has not been given back since.
  void Give(void* block, size_t bytes) TFHVD_EXCLUDES(lock_);

  // Gives all unused memory back to the system.
  void Trim() TFHVD_EXCLUDES(lock_);

  // Returns how many unused bytes are kept.
  size_t kept() const TFHVD_EXCLUDES(lock_);

 private:
  // A kept block begins with the address of the next one.
  struct Kept {
    Kept* next;
  };

  // The sizes: multiples of the alignment, four for each doubling from the fourth on.
  static constexpr size_t kSizes = 44;

  mutable SpinLock lock_;
  std::array<Kept*, kSizes> lists_ TFHVD_GUARDED_BY(lock_) = {};
  size_t kept_bytes_ TFHVD_GUARDED_BY(lock_) = 0;
};

}  // namespace tfhvd
