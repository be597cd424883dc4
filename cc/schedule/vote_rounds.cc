#include "cc/schedule/vote_rounds.h"

#include <algorithm>

namespace tfhvd {

bool VoteRounds::AllCommit() const {
  for (int i = 0; i < board_->words(); ++i) {
    if (!IsCommit(VoteOf(i))) return false;
  }
  return true;
}

// Returns whether the round can only be aborted: a rank has aborted it, or requests an abort of
// ranks that have not voted.
bool VoteRounds::SomeAbort() const {
  for (int i = 0; i < board_->words(); ++i) {
    const Vote vote = i == board_->own() ? Vote::kNone : VoteOf(i);
    if (IsAbort(vote) || (RequestsAbort(vote) && !voted_)) return true;
  }
  return false;
}

std::vector<int> VoteRounds::RanksWithoutVote() const {
  std::vector<int> ranks;
  for (int i = 0; i < board_->words(); ++i) {
    const Vote vote = VoteOf(i);
    if (vote != Vote::kNone && vote != Vote::kAbortRequested) continue;
    const std::vector<int> more = board_->RanksOf(i);
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

bool VoteRounds::FirstToWait() const {
  int first = 0;
  while (VoteOf(first) == Vote::kNone) ++first;
  return first == board_->own();
}

VoteRounds::Progress VoteRounds::Abort() {
  for (int i = 0; i < board_->words(); ++i) {
    aborted_late_ = aborted_late_ || VoteOf(i) == Vote::kAbortLate;
  }
  voted_ = false;
  ++round_;
  return Progress::kAborted;
}

VoteRounds::Progress VoteRounds::Step(Wish wish, bool complete) {
  if (!voted_) {
    const bool late = wish == Wish::kAbortLate && !complete;
    if (SomeAbort() || wish == Wish::kAbort || late) {
      Cast(late ? Vote::kAbortLate : Vote::kAbort);
      board_->WakeOthers();
      return Abort();
    }
    if (!complete) return Progress::kWait;
    Cast(Vote::kCommit);
    voted_ = true;
    abort_requested_ = false;
    // Only the last vote needs to wake ranks. The rank that casts it sees that it is the last.
    if (AllCommit()) board_->WakeOthers();
  } else if (wish != Wish::kContinue && !abort_requested_) {
    Cast(Vote::kCommitAbortRequested);
    board_->WakeOthers();
    abort_requested_ = true;
  }
  if (SomeAbort()) return Abort();
  if (!AllCommit()) return Progress::kWait;
  voted_ = false;
  ++round_;
  return Progress::kCommitted;
}

}  // namespace tfhvd
