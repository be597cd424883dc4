#include "cc/collectives/hierarchical/hierarchical_votes.h"

#include "cc/collectives/hierarchical/envelope.h"

namespace tfhvd {

HierarchicalVotes::HierarchicalVotes(const HostLayout* layout, int host, VoteBoard* board,
                                     ControlPlane* across)
    : layout_(layout),
      host_(host),
      board_(board),
      across_(across),
      exchange_(host, layout->hosts()) {}

void HierarchicalVotes::Cast(uint64_t word) {
  board_->Cast(word);
  if (leads()) {
    failure_ = Exchange();
    return;
  }
  // Only the last of this host's ranks wakes the leader.
  for (int i = 0; i < board_->words(); ++i) {
    if (RoundOf(board_->Word(i)) < RoundOf(word)) return;
  }
  board_->WakeOne(0);
}

uint64_t HierarchicalVotes::Word(int index) const {
  if (index < board_->words()) return board_->Word(index);
  return leads() ? known_ : board_->noted();
}

std::vector<int> HierarchicalVotes::RanksOf(int index) const {
  const std::vector<int>& here = layout_->ranks_of[static_cast<size_t>(host_)];
  if (index < board_->words()) return {here[static_cast<size_t>(index)]};
  const int missing = leads() ? exchange_.HostWithoutVote() : -1;
  return missing < 0 ? std::vector<int>() : layout_->ranks_of[static_cast<size_t>(missing)];
}

Status HierarchicalVotes::Take(const std::string& bytes) {
  int peer = 0;
  uint64_t word = 0;
  TFHVD_RETURN_IF_ERROR(DecodeVote(bytes, exchange_.peers(), &peer, &word));
  exchange_.Receive(peer, word);
  return Status::Ok();
}

// Returns the joint vote of this host's ranks in the round that is exchanged.
Vote HierarchicalVotes::Here() const {
  Vote together = Vote::kCommit;
  for (int i = 0; i < board_->words(); ++i) {
    together = Join(together, VoteIn(board_->Word(i), exchange_.round()));
  }
  return together;
}

Status HierarchicalVotes::Exchange() {
  TFHVD_RETURN_IF_ERROR(failure_);
  bool decided = true;
  while (decided) {
    const uint64_t elsewhere = exchange_.elsewhere();
    const Vote vote = VoteIn(elsewhere, exchange_.round());
    const bool news = vote != Vote::kNone && elsewhere != board_->noted();
    if (news) board_->Note(elsewhere);
    messages_.clear();
    decided = exchange_.Advance(Here(), &messages_);
    for (const VoteExchange::VoteMessage& message : messages_) {
      const int to = layout_->ranks_of[static_cast<size_t>(message.to)][0];
      TFHVD_RETURN_IF_ERROR(across_->Send(to, EncodeVote(message.peer, message.word)));
    }
    if (!messages_.empty()) sent_ = true;
    // A commit of the others lets no waiting rank continue; the rank that votes last sees it.
    if (decided || (news && !IsCommit(vote))) board_->WakeOthers();
  }
  if (across_->Flushed()) UpdateKnown();
  return Status::Ok();
}

// Everything decided before the present round has been sent. Of this round, only a request to abort
// matters, until it is decided.
void HierarchicalVotes::UpdateKnown() {
  const uint64_t round = exchange_.round();
  const uint64_t noted = board_->noted();
  if (RoundOf(noted) < round) {
    known_ = noted;
  } else {
    known_ =
        VoteWord(round, RequestsAbort(VoteIn(noted, round)) ? Vote::kAbortRequested : Vote::kNone);
  }
}

}  // namespace tfhvd
