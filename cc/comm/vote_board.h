// VoteBoard: words that ranks vote with (comm/vote.h), without messages to rank 0. On one host
// there is a word for each rank. Where there are several hosts, each host has a board of its own
// with a word for each of its ranks, and a last one for all the other hosts together.
//
// Used by the engine's thread only. A rank sees each other's words in the order in which they were
// cast, though it may miss some; words that two ranks cast at the same time are both seen by at
// least one of the two, so that the last one knows that it is the last.
#pragma once

#include <cstdint>
#include <vector>

namespace tfhvd {

class VoteBoard {
 public:
  virtual ~VoteBoard() = default;

  // How many words this rank sees, and which of them is its own.
  virtual int words() const = 0;
  virtual int own() const = 0;

  // Replaces this rank's word. All are 0 at first.
  virtual void Cast(uint64_t word) = 0;

  // The last word of slot `index` that has become visible here.
  virtual uint64_t Word(int index) const = 0;

  // The ranks that a word lacks the votes of while it says kNone, as far as is known here; for
  // messages.
  virtual std::vector<int> RanksOf(int index) const = 0;

  // Ends the control plane's Wait on every other rank that sees these words, or on the one whose
  // word is in slot `index`: the Wait that is under way, or else the next one. A word alone wakes
  // nobody.
  virtual void WakeOthers() = 0;
  virtual void WakeOne(int index) = 0;

  // One more word, which the rank of slot 0 alone replaces: what it has to pass on to the others.
  virtual void Note(uint64_t word) = 0;
  virtual uint64_t noted() const = 0;
};

}  // namespace tfhvd
