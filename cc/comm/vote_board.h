// VoteBoard: one word per rank that its owner writes and every rank reads, without messages. What
// the words mean is the business of who uses it (negotiate/locked_schedule.h).
//
// Used by the engine's thread only. A rank sees each other's words in the order in which they were
// cast, though it may miss some; words that two ranks cast at the same time are both seen by at
// least one of the two, so that the last one knows that it is the last.
#pragma once

#include <cstdint>

namespace tfhvd {

class VoteBoard {
 public:
  virtual ~VoteBoard() = default;

  // Replaces this rank's word. All are 0 at first.
  virtual void Cast(uint64_t word) = 0;

  // The last word of any rank that has become visible here.
  virtual uint64_t WordOf(int rank) const = 0;

  // Ends the control plane's Wait on every other rank, now or the next one. A word alone wakes
  // nobody.
  virtual void WakeOthers() = 0;
};

}  // namespace tfhvd
