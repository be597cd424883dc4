#include "cc/collectives/hierarchical/vote_exchange.h"

namespace tfhvd {
namespace {

// Up to so many hosts, each sends to all others: more messages than in hops, of a few bytes.
constexpr int kFewHosts = 8;

}  // namespace

VoteExchange::VoteExchange(int host, int hosts) : host_(host), hosts_(hosts) {
  for (int distance = 1; distance < hosts;) {
    const bool direct = hosts <= kFewHosts;
    peers_.push_back({distance, direct ? 0 : static_cast<int>(peers_.size())});
    distance = direct ? distance + 1 : 2 * distance;
  }
}

bool VoteExchange::Advance(Vote own, std::vector<VoteMessage>* messages) {
  Vote known = own;
  Vote before = own;  // what was known before the hop
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (i > 0 && peers_[i].hop != peers_[i - 1].hop) before = known;
    Send(i, before, messages);
    known = Join(known, VoteIn(peers_[i].received, round_));
  }
  if (!IsCommit(known) && !IsAbort(known)) return false;
  // The next round passes nothing of this one on, so an abort is sent to all peers now.
  for (size_t i = 0; i < peers_.size() && IsAbort(known); ++i) {
    if (!IsAbort(peers_[i].sent)) Send(i, known, messages);
  }
  ++round_;
  for (Peer& peer : peers_) peer.sent = Vote::kNone;
  return true;
}

void VoteExchange::Send(size_t peer, Vote vote, std::vector<VoteMessage>* messages) {
  if (vote == Vote::kNone || vote == peers_[peer].sent) return;
  peers_[peer].sent = vote;
  const int64_t to = (int64_t{host_} + peers_[peer].distance) % hosts_;
  messages->push_back({static_cast<int>(to), static_cast<int>(peer), VoteWord(round_, vote)});
}

uint64_t VoteExchange::elsewhere() const {
  Vote known = Vote::kCommit;
  for (const Peer& peer : peers_) known = Join(known, VoteIn(peer.received, round_));
  return VoteWord(round_, known);
}

int VoteExchange::HostWithoutVote() const {
  if (peers_.empty()) return -1;
  const Vote before = VoteIn(peers_[0].received, round_);
  const bool missing = before == Vote::kNone || before == Vote::kAbortRequested;
  return missing ? (host_ + hosts_ - 1) % hosts_ : -1;
}

}  // namespace tfhvd
