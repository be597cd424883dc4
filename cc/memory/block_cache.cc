#include "cc/memory/block_cache.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace tfhvd {
namespace {

// The size class for a number of bytes: its index and its size in bytes.
struct Size {
  size_t index;
  size_t bytes;
};

Size SizeFor(size_t bytes) {
  // In units of kAlignment.
  const size_t last = bytes > 0 ? (bytes - 1) / BlockCache::kAlignment : 0;
  size_t shift = 0;
  while (last >> shift >= 8) ++shift;
  const size_t part = last >> shift;
  return {4 * shift + part, ((part + 1) << shift) * BlockCache::kAlignment};
}

static_assert(BlockCache::kLargest == 4096 * BlockCache::kAlignment, "kSizes is of this many");

}  // namespace

void* BlockCache::Take(size_t bytes) {
  const Size size = SizeFor(bytes);
  {
    const SpinLockHolder held(&lock_);
    Kept*& list = lists_[size.index];
    if (list != nullptr) {
      kept_bytes_ -= size.bytes;
      return std::exchange(list, list->next);
    }
  }
  return std::aligned_alloc(kAlignment, size.bytes);
}

void BlockCache::Give(void* block, size_t bytes) {
  const Size size = SizeFor(bytes);
  {
    const SpinLockHolder held(&lock_);
    if (kept_bytes_ + size.bytes <= kMostKept) {
      kept_bytes_ += size.bytes;
      lists_[size.index] = new (block) Kept{lists_[size.index]};
      return;
    }
  }
  std::free(block);
}

void BlockCache::Trim() {
  std::array<Kept*, kSizes> lists = {};
  {
    const SpinLockHolder held(&lock_);
    std::swap(lists, lists_);
    kept_bytes_ = 0;
  }
  for (Kept* list : lists) {
    while (list != nullptr) std::free(std::exchange(list, list->next));
  }
}

size_t BlockCache::kept() const {
  const SpinLockHolder held(&lock_);
  return kept_bytes_;
}

}  // namespace tfhvd
