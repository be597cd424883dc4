#include "cc/backends/hierarchical/vote_exchange.h"

namespace tfhvd {

VoteExchange::VoteExchange(int host, int hosts) : host_(host), hosts_(hosts) {
  while (int64_t{1} << received_.size() < hosts) received_.push_back(0);
  sent_.assign(received_.size(), Vote::kNone);
}

bool VoteExchange::Advance(Vote own, std::vector<VoteMessage>* messages) {
  Vote known = own;
  for (size_t k = 0; k < received_.size(); ++k) {
    SendIn(k, known, messages);
    known = Join(known, VoteIn(received_[k], round_));
  }
  if (!IsCommit(known) && !IsAbort(known)) return false;
  // In the next round nothing of this one is passed on any more: an abort goes every way now.
  for (size_t k = 0; k < received_.size() && IsAbort(known); ++k) {
    if (!IsAbort(sent_[k])) SendIn(k, known, messages);
  }
  ++round_;
  sent_.assign(sent_.size(), Vote::kNone);
  return true;
}

void VoteExchange::SendIn(size_t hop, Vote vote, std::vector<VoteMessage>* messages) {
  if (vote == Vote::kNone || vote == sent_[hop]) return;
  sent_[hop] = vote;
  const int64_t to = (int64_t{host_} + (int64_t{1} << hop)) % hosts_;
  messages->push_back({static_cast<int>(to), static_cast<int>(hop), VoteWord(round_, vote)});
}

uint64_t VoteExchange::elsewhere() const {
  Vote known = Vote::kCommit;
  for (const uint64_t word : received_) known = Join(known, VoteIn(word, round_));
  return VoteWord(round_, known);
}

int VoteExchange::HostWithoutVote() const {
  if (received_.empty()) return -1;
  const Vote before = VoteIn(received_[0], round_);
  const bool missing = before == Vote::kNone || before == Vote::kAbortRequested;
  return missing ? (host_ + hosts_ - 1) % hosts_ : -1;
}

}  // namespace tfhvd
