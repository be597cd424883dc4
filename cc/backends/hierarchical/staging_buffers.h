// StagingBuffers: the memory through which data pass between the two levels of a collective.
//
// One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace tfhvd {

class StagingBuffers {
 public:
  enum Buffer { kPacked, kPart, kShare, kBuffers };

  // At least so many bytes. The same memory until more is asked for, which loses what was in it.
  char* Get(Buffer buffer, int64_t bytes) {
    std::vector<char>& kept = buffers_[buffer];
    if (static_cast<int64_t>(kept.size()) < bytes) kept.resize(static_cast<size_t>(bytes));
    return kept.data();
  }

 private:
  std::vector<char> buffers_[kBuffers];
};

}  // namespace tfhvd
