#include "cc/memory/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace tfhvd {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = 2 << 20;

// The number of calls of Take in a period: some steps of a large model.
constexpr int kPeriod = 4096;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* Map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// Large blocks use huge pages if the system has them: fewer page faults, and fewer misses later.
void* FromSystem(size_t bytes) {
  if (bytes < kHugePage) return Map(bytes);
  char* p = static_cast<char*>(Map(bytes + kHugePage));
  if (p == nullptr) return Map(bytes);
  const size_t before =
      RoundUp(reinterpret_cast<uintptr_t>(p), kHugePage) - reinterpret_cast<uintptr_t>(p);
  if (before > 0) munmap(p, before);
  if (before < kHugePage) munmap(p + before + bytes, kHugePage - before);
  madvise(p + before, bytes, MADV_HUGEPAGE);  // a wish: it may be refused
  return p + before;
}

}  // namespace

MemoryPool::~MemoryPool() { Trim(); }

// Finds the most recently used block that fits without much waste: it is most likely in a cache.
void* MemoryPool::Find(size_t bytes) {
  for (auto block = kept_.rbegin(); block != kept_.rend(); ++block) {
    if (block->bytes < bytes || block->bytes > bytes + bytes / 8) continue;
    void* const data = block->data;
    used_[data] = block->bytes;
    used_bytes_ += block->bytes;
    kept_bytes_ -= block->bytes;
    kept_.erase(std::next(block).base());
    return data;
  }
  return nullptr;
}

// Gives the longest unused blocks back to the system until at most `most` bytes are kept.
void MemoryPool::Shrink(size_t most) {
  size_t n = 0;
  for (; kept_bytes_ > most; ++n) {
    munmap(kept_[n].data, kept_[n].bytes);
    kept_bytes_ -= kept_[n].bytes;
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(n));
}

void MemoryPool::NotePeak() {
  peak_ = std::max(peak_, used_bytes_);
  if (++takes_ == kPeriod) {
    takes_ = 0;
    last_peak_ = peak_;
    peak_ = used_bytes_;
  }
  const size_t most = std::max(peak_, last_peak_);
  Shrink(most - used_bytes_);
}

void* MemoryPool::Take(size_t bytes) {
  bytes = RoundUp(std::max<size_t>(bytes, 1), bytes < kHugePage ? kPage : kHugePage / 8);
  {
    const MutexLock lock(&mutex_);
    if (void* const found = Find(bytes)) {
      NotePeak();
      return found;
    }
  }
  void* fresh = FromSystem(bytes);
  if (fresh == nullptr) {
    Trim();
    fresh = FromSystem(bytes);
    if (fresh == nullptr) return nullptr;
  }
  const MutexLock lock(&mutex_);
  used_[fresh] = bytes;
  used_bytes_ += bytes;
  NotePeak();
  return fresh;
}

void MemoryPool::Give(void* block) {
  const MutexLock lock(&mutex_);
  const auto found = used_.find(block);
  const size_t bytes = found->second;
  used_.erase(found);
  used_bytes_ -= bytes;
  kept_.push_back({block, bytes});
  kept_bytes_ += bytes;
}

void MemoryPool::Trim() {
  const MutexLock lock(&mutex_);
  Shrink(0);
}

size_t MemoryPool::used() const {
  const MutexLock lock(&mutex_);
  return used_bytes_;
}

size_t MemoryPool::kept() const {
  const MutexLock lock(&mutex_);
  return kept_bytes_;
}

}  // namespace tfhvd
