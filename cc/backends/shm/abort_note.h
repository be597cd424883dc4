// AbortNote: the reason why a collective of the ranks of one host has ended, in their shared
// memory: one rank writes it and all read it. Must be in zeroed memory; the first note stays.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/base/status.h"

namespace tfhvd {

class AbortNote {
 public:
  // Writes the note, cut off if it is too long. Any thread of any process.
  void Leave(const Status& why);

  // Returns ok if there is no note. Any thread of any process. A rank that dies while it writes its
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
