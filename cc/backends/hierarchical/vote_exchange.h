// VoteExchange: how each host learns what all hosts have voted in a round (comm/vote.h), by sending
// each other messages in hops: in hop k a host sends the one 2^k further on what it has voted and
// what it has received in the hops before. After ceil(log2(hosts)) hops everyone knows of everyone,
// and each has sent and taken one message a hop. What changes is sent at once, so that a request,
// or an abort, reaches everyone though some have not voted.
//
// One host's part, a pure state machine: votes and messages in, messages out. Rounds count from 1,
// and are those of negotiate/vote_rounds.h: the next begins once the last has been decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/comm/vote.h"

namespace tfhvd {

class VoteExchange {
 public:
  // For host `to`, in hop `hop`.
  struct VoteMessage {
    int to = 0;
    int hop = 0;
    uint64_t word = 0;
  };

  VoteExchange(int host, int hosts);

  int hops() const { return static_cast<int>(received_.size()); }
  uint64_t round() const { return round_; }

  // What the host 2^hop before this one has sent. REQUIRES: 0 <= hop < hops().
  void Receive(int hop, uint64_t word) { received_[static_cast<size_t>(hop)] = word; }

  // `own`: what this host's ranks have voted together in the round under way. Adds to `messages`
  // what is news to others. Whether the round is decided with that: then the next has begun.
  bool Advance(Vote own, std::vector<VoteMessage>* messages);

  // What all the other hosts have voted in the round under way, as a word.
  uint64_t elsewhere() const;

  // The host before this one if it lacks votes of this round: that much is known of who is missing.
  // -1: it does not.
  int HostWithoutVote() const;

 private:
  void SendIn(size_t hop, Vote vote, std::vector<VoteMessage>* messages);

  const int host_;
  const int hosts_;
  uint64_t round_ = 1;
  std::vector<uint64_t> received_;  // by hop
  std::vector<Vote> sent_;          // by hop, in this round
};

}  // namespace tfhvd
