// WorkMemory: memory to work in that is used again and again, as much as was asked for at once of
// late. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tfhvd {

class WorkMemory {
 public:
  // So little is not worth being given back.
  static constexpr int64_t kLittle = 16 << 20;

  // At least `bytes` bytes, aligned to a cache line; null where there are none, and nothing has
  // changed then. The same memory until more is asked for, which loses what was in it.
  char* Get(int64_t bytes) {
    if (bytes > capacity_ && !Resize(bytes)) return nullptr;
    asked_ = std::max(asked_, bytes);
    return memory_.get();
  }

  // Before each use, when nothing of it is needed any more: now and then gives back what nobody
  // has asked for.
  void BeginUse() {
    if (capacity_ <= kLittle || Clock::now() < trims_at_) return;
    trims_at_ = Clock::now() + kBetweenTrims;
    Trim();
  }

  // Keeps as much as was asked for at once since the last time, where there is twice that.
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
  int64_t asked_ = 0;  // the most, since the last Trim
  Clock::time_point trims_at_;
};

}  // namespace tfhvd
