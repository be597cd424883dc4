#include "cc/negotiate/locked_schedule.h"

#include <algorithm>
#include <utility>

namespace tfhvd {
void LockedSchedule::Begin(std::vector<Bucket> buckets) {
  buckets_ = std::move(buckets);
  first_.clear();
  missing_.clear();
  members_.clear();
  indices_.clear();
  for (const Bucket& bucket : buckets_) {
    const int index = static_cast<int>(missing_.size());
    first_.push_back(static_cast<int>(members_.size()));
    missing_.push_back(static_cast<int>(bucket.size()));
    for (CacheId id : bucket) {
      indices_[id] = static_cast<int>(members_.size());
      members_.push_back({index, false});
    }
  }
  active_ = true;
  ++begun_;
  current_ = 0;
  voted_ = abort_requested_ = ended_late_ = false;
  rounds_ = 0;
}

void LockedSchedule::Ready(int index) {
  members_[index].ready = true;
  --missing_[members_[index].bucket];
}

bool LockedSchedule::TakeBack(int index) {
  Member& member = members_[index];
  if (voted_ && member.bucket == static_cast<int>(current_)) return false;
  member.ready = false;
  ++missing_[member.bucket];
  return true;
}

bool LockedSchedule::AllCommit() const {
  for (int i = 0; i < board_->words(); ++i) {
    if (!IsCommit(VoteOf(i))) return false;
  }
  return true;
}

// Whether the round can only be aborted: somebody has aborted it, or requests it of who can.
bool LockedSchedule::SomeAbort() const {
  for (int i = 0; i < board_->words(); ++i) {
    const Vote vote = i == board_->own() ? Vote::kNone : VoteOf(i);
    if (IsAbort(vote) || (RequestsAbort(vote) && !voted_)) return true;
  }
  return false;
}

std::vector<int> LockedSchedule::RanksWithoutVote() const {
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

bool LockedSchedule::FirstToWait() const {
  int first = 0;
  while (VoteOf(first) == Vote::kNone) ++first;
  return first == board_->own();
}

LockedSchedule::Progress LockedSchedule::Abort() {
  for (int i = 0; i < board_->words(); ++i) {
    ended_late_ = ended_late_ || VoteOf(i) == Vote::kAbortLate;
  }
  active_ = voted_ = false;
  ++round_;
  return Progress::kOver;
}

LockedSchedule::Progress LockedSchedule::Step(Wish wish, bool may_commit) {
  if (!voted_) {
    const bool late = wish == Wish::kAbortLate && missing_[current_] > 0;
    if (SomeAbort() || wish == Wish::kAbort || late) {
      Cast(late ? Vote::kAbortLate : Vote::kAbort);
      board_->WakeOthers();
      return Abort();
    }
    if (missing_[current_] > 0 || !may_commit) return Progress::kWait;
    Cast(Vote::kCommit);
    voted_ = true;
    abort_requested_ = false;
    // Nobody needs to wake before the last vote is there; who casts it sees that it is the last.
    if (AllCommit()) board_->WakeOthers();
  } else if (wish != Wish::kContinue && !abort_requested_) {
    Cast(Vote::kCommitAbortRequested);
    board_->WakeOthers();
    abort_requested_ = true;
  }
  if (SomeAbort()) return Abort();
  if (!AllCommit()) return Progress::kWait;
  due_ = current_;
  missing_[due_] = static_cast<int>(buckets_[due_].size());
  for (int i = 0; i < missing_[due_]; ++i) members_[first_[due_] + i].ready = false;
  current_ = (current_ + 1) % buckets_.size();
  voted_ = false;
  ++round_;
  ++rounds_;
  return Progress::kRun;
}

}  // namespace tfhvd
