#include "cc/negotiate/locked_schedule.h"

#include <algorithm>
#include <utility>

namespace tfhvd {
void LockedSchedule::Begin(std::vector<Bucket> buckets) {
  buckets_ = std::move(buckets);
  first_.clear();
  missing_.clear();
  members_.clear();
  places_.clear();
  for (const Bucket& bucket : buckets_) {
    const int index = static_cast<int>(missing_.size());
    first_.push_back(static_cast<int>(members_.size()));
    missing_.push_back(static_cast<int>(bucket.size()));
    for (CacheId id : bucket) {
      places_[id] = static_cast<int>(members_.size());
      members_.push_back({index, false});
    }
  }
  active_ = true;
  ++begun_;
  current_ = 0;
  voted_ = asked_ = ended_late_ = false;
  turns_ = 0;
}

void LockedSchedule::Ready(int place) {
  members_[place].ready = true;
  --missing_[members_[place].bucket];
}

bool LockedSchedule::TakeBack(int place) {
  Member& member = members_[place];
  if (voted_ && member.bucket == static_cast<int>(current_)) return false;
  member.ready = false;
  ++missing_[member.bucket];
  return true;
}

bool LockedSchedule::AllGo() const {
  for (int i = 0; i < board_->words(); ++i) {
    if (!IsGo(VoteOf(i))) return false;
  }
  return true;
}

// Whether the turn can only end the schedule: somebody has ended it, or asks who can.
bool LockedSchedule::SomeEnd() const {
  for (int i = 0; i < board_->words(); ++i) {
    const Vote vote = i == board_->own() ? Vote::kNone : VoteOf(i);
    if (IsEnd(vote) || (Asks(vote) && !voted_)) return true;
  }
  return false;
}

std::vector<int> LockedSchedule::Silent() const {
  std::vector<int> silent;
  for (int i = 0; i < board_->words(); ++i) {
    const Vote vote = VoteOf(i);
    if (vote != Vote::kNone && vote != Vote::kAsking) continue;
    const std::vector<int> ranks = board_->RanksOf(i);
    silent.insert(silent.end(), ranks.begin(), ranks.end());
  }
  std::sort(silent.begin(), silent.end());
  return silent;
}

bool LockedSchedule::FirstToWait() const {
  int first = 0;
  while (VoteOf(first) == Vote::kNone) ++first;
  return first == board_->own();
}

LockedSchedule::Turn LockedSchedule::End() {
  for (int i = 0; i < board_->words(); ++i) {
    ended_late_ = ended_late_ || VoteOf(i) == Vote::kLate;
  }
  active_ = voted_ = false;
  ++turn_;
  return Turn::kOver;
}

LockedSchedule::Turn LockedSchedule::Step(Wish wish, bool may_go) {
  if (!voted_) {
    const bool late = wish == Wish::kLate && missing_[current_] > 0;
    if (SomeEnd() || wish == Wish::kEnd || late) {
      Cast(late ? Vote::kLate : Vote::kEnd);
      board_->WakeOthers();
      return End();
    }
    if (missing_[current_] > 0 || !may_go) return Turn::kWait;
    Cast(Vote::kGo);
    voted_ = true;
    asked_ = false;
    // Nobody needs to wake before the last vote is there; who casts it sees that it is the last.
    if (AllGo()) board_->WakeOthers();
  } else if (wish != Wish::kGoOn && !asked_) {
    Cast(Vote::kGoAsking);
    board_->WakeOthers();
    asked_ = true;
  }
  if (SomeEnd()) return End();
  if (!AllGo()) return Turn::kWait;
  due_ = current_;
  missing_[due_] = static_cast<int>(buckets_[due_].size());
  for (int i = 0; i < missing_[due_]; ++i) members_[first_[due_] + i].ready = false;
  current_ = (current_ + 1) % buckets_.size();
  voted_ = false;
  ++turn_;
  ++turns_;
  return Turn::kRun;
}

}  // namespace tfhvd
