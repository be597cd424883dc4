// AbortNote: why a collective of the ranks of one host is over, in the memory that they share: what
// one rank leaves is read by all of them. Lies in zeroed memory; the first note stays.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/base/status.h"

namespace tfhvd {

class AbortNote {
 public:
  // Any thread of any process. What is longer than there is room for is cut off.
  void Leave(const Status& why);

  // Ok where nobody has left one. Any thread of any process; a rank that dies while it writes its
  // note leaves none.
  Status Read() const;

 private:
  enum State : uint32_t { kEmpty, kBeingWritten, kWritten };

  std::atomic<uint32_t> state_;
  uint32_t code_;
  uint32_t length_;
  char text_[2036];
};

}  // namespace tfhvd
