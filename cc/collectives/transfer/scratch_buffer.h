// ScratchBuffer: memory for messages, kept between calls. One thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tfhvd {

class ScratchBuffer {
 public:
  // Returns at least so many bytes; the buffer's content is not kept.
  char* Get(int64_t bytes) {
    if (static_cast<int64_t>(memory_.size()) < bytes) {
      memory_ = std::vector<char>();  // frees the old memory first
      memory_.resize(static_cast<size_t>(bytes));
    }
    return memory_.data();
  }

  // Leaks the memory, because the transport may still write to it.
  void Leak() { (void)new std::vector<char>(std::move(memory_)); }

 private:
  std::vector<char> memory_;
};

}  // namespace tfhvd
