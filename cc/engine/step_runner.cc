#include "cc/engine/step_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/comm/stall_guard.h"
#include "cc/negotiate/agree.h"

namespace tfhvd {
namespace {

// A locked step is given up where a bucket does not fill for this long after the last entry, or
// this many times the longest gap between entries of late; and where others do not vote for so
// long, so that the coordinator can say who is missing. Both cost little: three steps later it is
// back.
constexpr double kShortestFillLimit = 0.1;  // seconds
constexpr double kLongestFillLimit = 2.0;
constexpr double kGapFactor = 4.0;
constexpr double kVoteLimit = 1.0;

// Entries of a step do not wake the engine before their bucket is complete. It looks this often
// whether some have come, and whether the rest is late.
constexpr double kLookSeconds = 0.02;

}  // namespace

void StepRunner::Begin(std::shared_ptr<const LockedStep> step, std::vector<Entry> pending,
                       double now) {
  step_ = std::move(step);
  current_ = 0;
  rounds_ = 0;
  votes_reported_ = false;
  votes_.Begin();
  queue_->Lock(step_, &pending);
  foreign_ = std::move(pending);
  collected_ = queue_->collected();
  gaps_.BucketRan(now);
}

// Notes what has come since the last look.
void StepRunner::Look(double now) {
  const SubmissionQueue::Collected collected = queue_->collected();
  if (collected.taken != collected_.taken) gaps_.Came(now, collected_.waiting == 0);
  collected_ = collected;
}

StepRunner::Progress StepRunner::Run(double now, bool may_go_on, std::vector<Agreed>* bucket) {
  Look(now);
  const bool voted = votes_.voted();
  const VoteRounds::Wish wish = WishAt(now, may_go_on);
  if (held_.empty() && wish != VoteRounds::Wish::kAbort) (void)queue_->TakeBucket(&held_);
  const VoteRounds::Progress progress = votes_.Step(wish, !held_.empty());
  if (votes_.voted() && !voted) {
    voted_at_ = now;
    votes_reported_ = false;
    ObserveVotes(false);
    if (progress == VoteRounds::Progress::kWait) ObserveWait();
  }
  if (progress == VoteRounds::Progress::kWait) return Progress::kWait;
  if (progress == VoteRounds::Progress::kAborted) {
    observed_.clear();
    return Progress::kEnded;
  }
  ObserveVotes(true);
  queue_->BucketRuns();
  std::swap(*bucket, held_);
  held_.clear();
  current_ = (current_ + 1) % step_->buckets.size();
  ++rounds_;
  gaps_.BucketRan(now);
  if (current_ == 0) gaps_.StepRan();
  collected_ = queue_->collected();
  return Progress::kRan;
}

VoteRounds::Wish StepRunner::WishAt(double now, bool may_go_on) const {
  using Wish = VoteRounds::Wish;
  if (!may_go_on || !foreign_.empty() || !cancelled_.empty()) return Wish::kAbort;
  if (votes_.voted()) {
    const double limit = std::min(kVoteLimit, config_.stall_check_time / 4);
    const bool overdue = config_.stall_check && now - voted_at_ >= limit;
    return overdue ? Wish::kAbort : Wish::kContinue;
  }
  // Its term ends on all ranks in the same round.
  if (step_->term > 0 && rounds_ >= step_->term) return Wish::kAbort;
  const double limit =
      std::clamp(kGapFactor * gaps_.longest(), kShortestFillLimit, kLongestFillLimit);
  const bool late = collected_.waiting > 0 && now - gaps_.last() >= limit;
  return late ? Wish::kAbortLate : Wish::kContinue;
}

StepRunner::Rest StepRunner::TakeRest() {
  Rest rest;
  rest.rounds = rounds_;
  rest.late = votes_.aborted_late();
  TakeAll(&rest.entries);
  std::sort(rest.entries.begin(), rest.entries.end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
  std::swap(rest.cancelled, cancelled_);
  return rest;
}

void StepRunner::TakeAll(std::vector<Entry>* entries) {
  for (Agreed& agreed : held_) entries->push_back(std::move(agreed.entry));
  held_.clear();
  for (Entry& entry : foreign_) entries->push_back(std::move(entry));
  foreign_.clear();
  queue_->Unlock(entries);
  step_ = nullptr;
}

bool StepRunner::idle() const {
  return held_.empty() && foreign_.empty() && cancelled_.empty() &&
         queue_->collected().waiting == 0;
}

double StepRunner::wake_at(double now) const {
  if (votes_.voted()) return now + kVoteLimit / 4;
  if (WishAt(now, true) == VoteRounds::Wish::kAbort) return now;
  // One that is awaited alone completes its bucket, and so wakes.
  const bool unseen = bucket().count > 1 || collected_.waiting > 0;
  return unseen ? now + kLookSeconds : std::numeric_limits<double>::infinity();
}

std::string StepRunner::doing() const {
  return Describe(*step_->collectives[static_cast<size_t>(bucket().first)].request);
}

// A rank whose engine runs answers soon, if only with an abort. The first of those who wait reports
// the others; of another host's, a leader knows who they are.
Status StepRunner::CheckVotes(double now) {
  const double seconds = waited(now);
  const bool over = config_.stall_shutdown_time > 0 &&
                    seconds >= config_.stall_shutdown_time + StallGuard::kGraceSeconds;
  if (!over && seconds < config_.stall_check_time) return Status::Ok();
  const std::vector<int> missing = votes_.RanksWithoutVote();
  const std::string who =
      missing.empty()
          ? "ranks of other hosts (a rank of each such host names them)"
          : "ranks " + RankList(missing) + " (first on host " + topology_.hosts[missing[0]] + ")";
  const std::string text =
      doing() + " has waited " + std::to_string(static_cast<int>(seconds)) + " s: " + who +
      " do not answer. Their processes may be stopped (kill -CONT) or cut off.";
  if (over) return Status::Aborted(text);
  if (missing.empty()) return Status::Ok();
  if (!votes_reported_ && votes_.FirstToWait()) log_.Warning(text);
  votes_reported_ = true;
  return Status::Ok();
}

// Tells of who keeps this rank waiting, which has just voted.
void StepRunner::ObserveWait() {
  if (observer_ == nullptr || !observer_->on()) return;
  const std::vector<int> missing = votes_.RanksWithoutVote();
  observer_->WaitedFor(held_, missing.size() == 1 ? missing[0] : kSeveralRanks);
}

// Tells of the votes of this host that are there when this rank has cast its own, and of the others
// when the round is `decided`.
void StepRunner::ObserveVotes(bool decided) {
  if (observer_ == nullptr || !observer_->wants_ranks()) return observed_.clear();
  std::vector<bool> there(static_cast<size_t>(topology_.size), true);
  if (!decided) {
    const int here = topology_.host_of[topology_.rank];
    for (int rank = 0; rank < topology_.size; ++rank) there[rank] = topology_.host_of[rank] == here;
    for (const int rank : votes_.RanksWithoutVote()) there[rank] = false;
  }
  for (int rank = 0; rank < topology_.size; ++rank) {
    if (!there[rank] || (!observed_.empty() && observed_[rank])) continue;
    for (const Agreed& agreed : held_) {
      const Request& request = *agreed.entry.request;
      observer_->RankReady(request.key, request.kind, rank, true);
    }
  }
  observed_ = std::move(there);
  if (decided) observed_.clear();
}

}  // namespace tfhvd
