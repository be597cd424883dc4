#include "cc/backends/hierarchical/hierarchical_votes.h"

#include "cc/backends/hierarchical/envelope.h"

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
  // The last of this host's ranks lets the leader know.
  for (int i = 0; i < board_->words(); ++i) {
    if (TurnOf(board_->Word(i)) < TurnOf(word)) return;
  }
  board_->WakeOne(0);
}

uint64_t HierarchicalVotes::Word(int place) const {
  if (place < board_->words()) return board_->Word(place);
  return leads() ? known_ : board_->noted();
}

std::vector<int> HierarchicalVotes::RanksOf(int place) const {
  const std::vector<int>& here = layout_->ranks_of[static_cast<size_t>(host_)];
  if (place < board_->words()) return {here[static_cast<size_t>(place)]};
  const int silent = leads() ? exchange_.SilentHost() : -1;
  return silent < 0 ? std::vector<int>() : layout_->ranks_of[static_cast<size_t>(silent)];
}

Status HierarchicalVotes::Take(const std::string& bytes) {
  int round = 0;
  uint64_t word = 0;
  TFHVD_RETURN_IF_ERROR(DecodeVote(bytes, exchange_.rounds(), &round, &word));
  exchange_.Hear(round, word);
  return Status::Ok();
}

// What this host's ranks have voted together in the turn that is exchanged.
Vote HierarchicalVotes::Here() const {
  Vote together = Vote::kGo;
  for (int i = 0; i < board_->words(); ++i) {
    together = Join(together, VoteIn(board_->Word(i), exchange_.turn()));
  }
  return together;
}

Status HierarchicalVotes::Exchange() {
  TFHVD_RETURN_IF_ERROR(failure_);
  bool decided = true;
  while (decided) {
    const uint64_t elsewhere = exchange_.elsewhere();
    const Vote vote = VoteIn(elsewhere, exchange_.turn());
    const bool news = vote != Vote::kNone && elsewhere != board_->noted();
    if (news) board_->Note(elsewhere);
    letters_.clear();
    decided = exchange_.Tell(Here(), &letters_);
    for (const VoteExchange::Letter& letter : letters_) {
      const int to = layout_->ranks_of[static_cast<size_t>(letter.to)][0];
      TFHVD_RETURN_IF_ERROR(across_->Send(to, EncodeVote(letter.round, letter.word)));
    }
    if (!letters_.empty()) told_ = true;
    // Go of the others alone lets nobody go on; who votes last sees it.
    if (decided || (news && !IsGo(vote))) board_->WakeOthers();
  }
  if (across_->Flushed()) TakeNote();
  return Status::Ok();
}

// All that was decided before the turn under way has been told by now. Of this turn only a question
// is of interest, until it is decided.
void HierarchicalVotes::TakeNote() {
  const uint64_t turn = exchange_.turn();
  const uint64_t noted = board_->noted();
  if (TurnOf(noted) < turn) {
    known_ = noted;
  } else {
    known_ = VoteWord(turn, Asks(VoteIn(noted, turn)) ? Vote::kAsking : Vote::kNone);
  }
}

}  // namespace tfhvd
