// WorkMemory: scratch memory that is reused, as large as the largest recent request. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tfhvd {

class WorkMemory {
 public:
  // Memory of this size or less is never given back.
  static constexpr int64_t kLittle = 16 << 20;

  // Returns at least `bytes` bytes, aligned to a cache line; null if there is no memory, and then
  // nothing has changed. Returns the same memory until a larger request, which loses the contents.
  char* Get(int64_t bytes) {
    if (bytes > capacity_ && !Resize(bytes)) return nullptr;
    asked_ = std::max(asked_, bytes);
    return memory_.get();
  }

  // Call before each use, when the contents are no longer needed: now and then returns memory to
  // the system that no recent request needed.
  void BeginUse() {
    if (capacity_ <= kLittle || Clock::now() < trims_at_) return;
    trims_at_ = Clock::now() + kBetweenTrims;
    Trim();
  }

  // Shrinks the memory to the largest request since the last Trim, if it is at least twice as
  // large.
  void Trim() {
    const int64_t asked = std::max(asked_, kLittle);
    if (asked <= capacity_ / 2) (void)Resize(asked);
    asked_ = 0;
  }

  int64_t capacity() const { return capacity_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetweenTrims{10};

  bool Resize(int64_t bytes) {
    constexpr int64_t kLine = 64;
    const int64_t rounded = (std::max<int64_t>(bytes, 1) + kLine - 1) / kLine * kLine;
    char* const resized = static_cast<char*>(std::aligned_alloc(kLine, rounded));
    if (resized == nullptr) return false;
    memory_.reset(resized);
    capacity_ = rounded;
    return true;
  }

  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t capacity_ = 0;
  int64_t asked_ = 0;  // the largest request since the last Trim
  Clock::time_point trims_at_;
};

}  // namespace tfhvd
