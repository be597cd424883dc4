#include "cc/backends/hierarchical/vote_exchange.h"

namespace tfhvd {

VoteExchange::VoteExchange(int host, int hosts) : host_(host), hosts_(hosts) {
  while (int64_t{1} << heard_.size() < hosts) heard_.push_back(0);
  told_.assign(heard_.size(), Vote::kNone);
}

bool VoteExchange::Tell(Vote own, std::vector<Letter>* letters) {
  Vote known = own;
  for (size_t k = 0; k < heard_.size(); ++k) {
    TellIn(k, known, letters);
    known = Join(known, VoteIn(heard_[k], turn_));
  }
  if (!IsGo(known) && !IsEnd(known)) return false;
  // In the next turn nothing of this one is passed on any more: an end goes every way now.
  for (size_t k = 0; k < heard_.size() && IsEnd(known); ++k) {
    if (!IsEnd(told_[k])) TellIn(k, known, letters);
  }
  ++turn_;
  told_.assign(told_.size(), Vote::kNone);
  return true;
}

void VoteExchange::TellIn(size_t round, Vote vote, std::vector<Letter>* letters) {
  if (vote == Vote::kNone || vote == told_[round]) return;
  told_[round] = vote;
  const int64_t to = (int64_t{host_} + (int64_t{1} << round)) % hosts_;
  letters->push_back({static_cast<int>(to), static_cast<int>(round), VoteWord(turn_, vote)});
}

uint64_t VoteExchange::elsewhere() const {
  Vote known = Vote::kGo;
  for (const uint64_t word : heard_) known = Join(known, VoteIn(word, turn_));
  return VoteWord(turn_, known);
}

int VoteExchange::SilentHost() const {
  if (heard_.empty()) return -1;
  const Vote before = VoteIn(heard_[0], turn_);
  const bool silent = before == Vote::kNone || before == Vote::kAsking;
  return silent ? (host_ + hosts_ - 1) % hosts_ : -1;
}

}  // namespace tfhvd
