// VoteExchange: how each host learns what all hosts have voted in a round (comm/vote.h), by sending
// each other messages. Up to eight hosts each send the others what they have voted: that takes one
// way across the network. More do it in hops: in hop k a host sends the one 2^k further on what it
// has voted and what it has received in the hops before; after ceil(log2(hosts)) hops everyone
// knows of everyone, and each has sent and taken one message a hop. What changes is sent at once,
// so that a request, or an abort, reaches everyone though some have not voted.
//
// One host's part, a pure state machine: votes and messages in, messages out. Rounds count from 1,
// and are those of schedule/vote_rounds.h: the next begins once the last has been decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/comm/vote.h"

namespace tfhvd {

class VoteExchange {
 public:
  // For host `to`, to which this one is its `peer`-th.
  struct VoteMessage {
    int to = 0;
    int peer = 0;
    uint64_t word = 0;
  };

  VoteExchange(int host, int hosts);

  // How many hosts send to this one, and how many messages it sends where nobody aborts.
  int peers() const { return static_cast<int>(peers_.size()); }
  uint64_t round() const { return round_; }

  // What the `peer`-th of them has sent. REQUIRES: 0 <= peer < peers().
  void Receive(int peer, uint64_t word) { peers_[static_cast<size_t>(peer)].received = word; }

  // `own`: what this host's ranks have voted together in the round under way. Adds to `messages`
  // what is news to others. Whether the round is decided with that: then the next has begun.
  bool Advance(Vote own, std::vector<VoteMessage>* messages);

  // What all the other hosts have voted in the round under way, as a word.
  uint64_t elsewhere() const;

  // The host before this one if it lacks votes of this round: so one host alone reports it. -1: it
  // does not.
  int HostWithoutVote() const;

 private:
  // The host `distance` before this one sends to it, and it sends to the host as far behind.
  struct Peer {
    int distance = 0;
    int hop = 0;  // what it sends is what it knows after the hops before
    uint64_t received = 0;
    Vote sent = Vote::kNone;  // in this round
  };

  void Send(size_t peer, Vote vote, std::vector<VoteMessage>* messages);

  const int host_;
  const int hosts_;
  uint64_t round_ = 1;
  std::vector<Peer> peers_;  // in the order of hops, the nearest first
};

}  // namespace tfhvd
