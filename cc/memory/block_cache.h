// BlockCache: small blocks of host memory that are used again and again. Blocks of nearly one size
// lie in one list, so that to take or give one is to move a pointer; an allocator for everything
// searches, splits and merges, and twice as much for blocks that are aligned and given back by
// another thread than took them.
//
// Any thread.
#pragma once

#include <array>
#include <cstddef>

#include "cc/base/mutex.h"

namespace tfhvd {

class BlockCache {
 public:
  // Larger ones are MemoryPool's.
  static constexpr size_t kLargest = 256 << 10;
  static constexpr size_t kAlignment = 64;

  // No more bytes than this are kept that nobody uses.
  static constexpr size_t kMostKept = 32 << 20;

  BlockCache() = default;
  ~BlockCache() { Trim(); }
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // At least `bytes` bytes, aligned to kAlignment, with any contents; null where the system has
  // none. REQUIRES: bytes <= kLargest.
  void* Take(size_t bytes) TFHVD_EXCLUDES(lock_);

  // REQUIRES: `block` came from Take(bytes) and is given back for the first time since.
  void Give(void* block, size_t bytes) TFHVD_EXCLUDES(lock_);

  // Gives all that is not in use back to the system.
  void Trim() TFHVD_EXCLUDES(lock_);

  // Bytes that are not in use but kept.
  size_t kept() const TFHVD_EXCLUDES(lock_);

 private:
  // A block that is kept begins with the address of the next one.
  struct Kept {
    Kept* next;
  };

  // Multiples of the alignment, four for each doubling from the fourth on.
  static constexpr size_t kSizes = 44;

  mutable SpinLock lock_;
  std::array<Kept*, kSizes> lists_ TFHVD_GUARDED_BY(lock_) = {};
  size_t kept_bytes_ TFHVD_GUARDED_BY(lock_) = 0;
};

}  // namespace tfhvd
