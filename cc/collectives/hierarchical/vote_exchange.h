// VoteExchange: how each host learns the votes of all hosts in a round (comm/vote.h) by messages
// between hosts. Up to eight hosts each send their vote to all others: that takes one crossing of
// the network. More hosts use hops: in hop k a host sends its vote, joined with those received in
// the hops before, to the host 2^k further on; after ceil(log2(hosts)) hops every host knows all
// votes, and each has sent and received one message in each hop. Changes are sent at once, so that
// a request, or an abort, reaches all hosts even if some have not voted.
//
// One host's part, a pure state machine: votes and messages in, messages out. Rounds count from 1,
// and are those of schedule/vote_rounds.h: the next begins when the last is decided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/comm/vote.h"

namespace tfhvd {

class VoteExchange {
 public:
  // A message for host `to`, from its `peer`-th peer, this host.
  struct VoteMessage {
    int to = 0;
    int peer = 0;
    uint64_t word = 0;
  };

  VoteExchange(int host, int hosts);

  // The number of hosts that send to this one, and of messages that it sends if no rank aborts.
  int peers() const { return static_cast<int>(peers_.size()); }
  uint64_t round() const { return round_; }

  // Takes the message of the `peer`-th peer. REQUIRES: 0 <= peer < peers().
  void Receive(int peer, uint64_t word) { peers_[static_cast<size_t>(peer)].received = word; }

  // `own`: the joint vote of this host's ranks in the present round. Adds the news for other hosts
  // to `messages`. Returns whether this decides the round: then the next has begun.
  bool Advance(Vote own, std::vector<VoteMessage>* messages);

  // Returns the joint vote of all other hosts in the present round, as a word.
  uint64_t elsewhere() const;

  // Returns the host before this one if its votes for this round are missing, so that only one host
  // reports it; otherwise -1.
  int HostWithoutVote() const;

 private:
  // The host `distance` before this one sends to it, and this one sends to the host `distance`
  // behind.
  struct Peer {
    int distance = 0;
    int hop = 0;  // it sends what it knows after the hops before
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
