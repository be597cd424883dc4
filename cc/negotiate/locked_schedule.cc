#include "cc/negotiate/locked_schedule.h"

#include <utility>

namespace tfhvd {
namespace {

// A word is the turn times four, and one of these.
constexpr uint64_t kEndVote = 0;
constexpr uint64_t kLateVote = 1;  // end
constexpr uint64_t kGoVote = 2;
constexpr uint64_t kGoAskingVote = 3;  // go, but please end if you can
constexpr uint64_t kNoVote = 4;

constexpr bool IsGo(uint64_t vote) { return vote == kGoVote || vote == kGoAskingVote; }

}  // namespace

void LockedSchedule::Begin(std::vector<Bucket> buckets) {
  buckets_ = std::move(buckets);
  places_.clear();
  missing_.clear();
  for (const Bucket& bucket : buckets_) {
    for (CacheId id : bucket) places_[id] = {static_cast<int>(missing_.size()), false};
    missing_.push_back(static_cast<int>(bucket.size()));
  }
  active_ = true;
  current_ = 0;
  voted_ = asked_ = ended_late_ = false;
  turns_ = 0;
}

bool LockedSchedule::Ready(CacheId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return false;
  place->second.ready = true;
  --missing_[place->second.bucket];
  return true;
}

bool LockedSchedule::TakeBack(CacheId id) {
  const auto place = places_.find(id);
  if (place == places_.end() || !place->second.ready) return false;
  if (voted_ && place->second.bucket == static_cast<int>(current_)) return false;
  place->second.ready = false;
  ++missing_[place->second.bucket];
  return true;
}

// A rank that is further than this turn has voted go in it: it could not have passed otherwise.
uint64_t LockedSchedule::VoteOf(int rank) const {
  const uint64_t word = board_->WordOf(rank);
  const uint64_t turn = word >> 2;
  if (turn < turn_) return kNoVote;
  return turn > turn_ ? kGoVote : word & 3;
}

bool LockedSchedule::AllGo() const {
  for (int r = 0; r < size_; ++r) {
    if (!IsGo(VoteOf(r))) return false;
  }
  return true;
}

// Whether the turn can only end the schedule: somebody has ended it, or asks who can.
bool LockedSchedule::SomeEnd() const {
  for (int r = 0; r < size_; ++r) {
    const uint64_t vote = r == rank_ ? kNoVote : VoteOf(r);
    if (vote == kEndVote || vote == kLateVote || (vote == kGoAskingVote && !voted_)) return true;
  }
  return false;
}

std::vector<int> LockedSchedule::Silent() const {
  std::vector<int> silent;
  for (int r = 0; r < size_; ++r) {
    if (VoteOf(r) == kNoVote) silent.push_back(r);
  }
  return silent;
}

void LockedSchedule::Cast(uint64_t vote) { board_->Cast(turn_ << 2 | vote); }

LockedSchedule::Turn LockedSchedule::End() {
  for (int r = 0; r < size_; ++r) ended_late_ = ended_late_ || VoteOf(r) == kLateVote;
  active_ = voted_ = false;
  ++turn_;
  return Turn::kOver;
}

LockedSchedule::Turn LockedSchedule::Step(Wish wish) {
  if (!voted_) {
    const bool late = wish == Wish::kLate && missing_[current_] > 0;
    if (SomeEnd() || wish == Wish::kEnd || late) {
      Cast(late ? kLateVote : kEndVote);
      board_->WakeOthers();
      return End();
    }
    if (missing_[current_] > 0) return Turn::kWait;
    Cast(kGoVote);
    voted_ = true;
    asked_ = false;
    // Nobody needs to wake before the last vote is there; who casts it sees that it is the last.
    if (AllGo()) board_->WakeOthers();
  } else if (wish != Wish::kGoOn && !asked_) {
    Cast(kGoAskingVote);
    board_->WakeOthers();
    asked_ = true;
  }
  if (SomeEnd()) return End();
  if (!AllGo()) return Turn::kWait;
  due_ = current_;
  for (CacheId id : buckets_[due_]) places_[id].ready = false;
  missing_[due_] = static_cast<int>(buckets_[due_].size());
  current_ = (current_ + 1) % buckets_.size();
  voted_ = false;
  ++turn_;
  ++turns_;
  return Turn::kRun;
}

}  // namespace tfhvd
