// VoteBoard: words that ranks vote with (comm/vote.h), without messages to rank 0. On one host
// there is a word for each rank. With several hosts, each host has a separate board with a word for
// each of its ranks, and a last word for all other hosts together.
//
// Used by the engine's thread only. A rank sees the words of another rank in the order in which
// they were cast, though it may miss some. Of two words that are cast at the same time, at least
// one of the two ranks sees both, so that the last rank to vote knows that it is the last.
#pragma once

#include <cstdint>
#include <vector>

namespace tfhvd {

class VoteBoard {
 public:
  virtual ~VoteBoard() = default;

  // Return how many words this rank sees, and which of them it writes.
  virtual int words() const = 0;
  virtual int own() const = 0;

  // Replaces this rank's word. All words are 0 at first.
  virtual void Cast(uint64_t word) = 0;

  // Returns the last word of slot `index` that has become visible here.
  virtual uint64_t Word(int index) const = 0;

  // Returns the ranks whose votes are missing in a word that says kNone, as far as this rank knows;
  // for messages.
  virtual std::vector<int> RanksOf(int index) const = 0;

  // End the control plane's Wait on every other rank that sees these words, or on the rank whose
  // word is in slot `index`: the present Wait, or else the next one. Cast alone wakes no rank.
  virtual void WakeOthers() = 0;
  virtual void WakeOne(int index) = 0;

  // One more word, which only the rank of slot 0 replaces: the vote that it passes on to the
  // others.
  virtual void Note(uint64_t word) = 0;
  virtual uint64_t noted() const = 0;
};

}  // namespace tfhvd
