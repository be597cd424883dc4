// VoteExchange: how each host learns what all hosts have voted in a turn (comm/vote.h), by telling
// each other in rounds: in round k a host tells the one 2^k further on what it has voted and what
// it was told in the rounds before. After ceil(log2(hosts)) rounds everyone knows of everyone, and
// each has sent and taken one message a round. What changes is told at once, so that a question, or
// an end, reaches everyone though some have not voted.
//
// One host's part, a pure state machine: votes and messages in, messages out. Turns count from 1,
// and are those of negotiate/locked_schedule.h: the next begins once the last has been decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/comm/vote.h"

namespace tfhvd {

class VoteExchange {
 public:
  // "In round `round`, tell host `to`."
  struct Letter {
    int to = 0;
    int round = 0;
    uint64_t word = 0;
  };

  VoteExchange(int host, int hosts);

  int rounds() const { return static_cast<int>(heard_.size()); }
  uint64_t turn() const { return turn_; }

  // What the host 2^round before this one tells. REQUIRES: 0 <= round < rounds().
  void Hear(int round, uint64_t word) { heard_[static_cast<size_t>(round)] = word; }

  // `own`: what this host's ranks have voted together in the turn under way. Adds to `letters` what
  // is news to others. Whether the turn is decided with that: then the next has begun.
  bool Tell(Vote own, std::vector<Letter>* letters);

  // What all the other hosts have voted in the turn under way, as a word.
  uint64_t elsewhere() const;

  // The host before this one if it lacks votes of this turn: that much is known of who is missing.
  // -1: it does not.
  int SilentHost() const;

 private:
  void TellIn(size_t round, Vote vote, std::vector<Letter>* letters);

  const int host_;
  const int hosts_;
  uint64_t turn_ = 1;
  std::vector<uint64_t> heard_;  // by round
  std::vector<Vote> told_;       // by round, in this turn
};

}  // namespace tfhvd
