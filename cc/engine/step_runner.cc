#include "cc/engine/step_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/comm/stall_guard.h"
#include "cc/negotiate/agree.h"

namespace tfhvd {
namespace {

// A locked step ends if a bucket does not fill within this time after the last entry, or within
// this many times the longest recent gap between entries. It also ends if the other ranks do not
// vote for so long, so that the coordinator can say which ranks are missing. Both cost little: the
// step is locked again three steps later.
constexpr double kShortestFillLimit = 0.1;  // seconds
constexpr double kLongestFillLimit = 2.0;
constexpr double kGapFactor = 4.0;
constexpr double kVoteLimit = 1.0;

// How often the engine checks whether entries have arrived, and whether the rest is late: entries
// of a step wake it only when their bucket is complete.
constexpr double kLookSeconds = 0.02;

}  // namespace

void StepRunner::Begin(std::shared_ptr<const LockedStep> step, std::vector<Entry> pending,
                       double now) {
  step_ = std::move(step);
  current_ = 0;
  rounds_ = 0;
  votes_reported_ = false;
  votes_.Begin();
  periods_.Begin();
  queue_->Lock(step_, &pending);
  foreign_ = std::move(pending);
  collected_ = queue_->collected();
  gaps_.BucketRan(now);
  if (observer_ != nullptr && observer_->on()) observer_->StepLocked();
}

// Records the entries that have arrived since the last look.
void StepRunner::Look(double now) {
  const SubmissionQueue::Collected collected = queue_->collected();
  if (collected.taken != collected_.taken) gaps_.Came(now, collected_.waiting == 0);
  collected_ = collected;
}

StepRunner::Progress StepRunner::Run(double now, bool may_go_on, std::vector<Agreed>* bucket) {
  Look(now);
  const bool voted = votes_.voted();
  UnlockReason why = UnlockReason::kAnotherRank;
  const VoteRounds::Wish wish = WishAt(now, may_go_on, &why);
  if (held_.empty() && wish != VoteRounds::Wish::kAbort) (void)queue_->TakeBucket(&held_);
  const VoteRounds::Progress progress = votes_.Step(wish, !held_.empty());
  if (votes_.voted() && !voted) {
    config_.failpoints.Hit(Failpoint::kVoteCast);
    voted_at_ = now;
    votes_reported_ = false;
    ObserveVotes(false);
    if (progress == VoteRounds::Progress::kWait) ObserveWait();
  } else if (progress == VoteRounds::Progress::kWait && voted && waits_for_ == kSeveralRanks) {
    waits_for_ = OneMissing();
  }
  if (progress == VoteRounds::Progress::kWait) return Progress::kWait;
  ObserveEnd(voted ? now - voted_at_ : 0.0, progress, why);
  if (progress == VoteRounds::Progress::kAborted) {
    observed_.clear();
    return Progress::kEnded;
  }
  config_.failpoints.Hit(Failpoint::kBucketAgreed);
  ObserveVotes(true);
  queue_->BucketRuns();
  std::swap(*bucket, held_);
  held_.clear();
  current_ = (current_ + 1) % step_->buckets.size();
  ++rounds_;
  gaps_.BucketRan(now);
  if (current_ == 0) {
    gaps_.StepRan();
    periods_.StepRan(now);
  }
  collected_ = queue_->collected();
  return Progress::kRan;
}

// Sets `why` if this rank wants the step to end.
bool StepRunner::WantsToEnd(double now, bool may_go_on, UnlockReason* why) const {
  const auto wants = [why](bool wanted, UnlockReason reason) {
    if (wanted) *why = reason;
    return wanted;
  };
  if (wants(!foreign_.empty(), UnlockReason::kOtherEntry)) return true;
  if (wants(!cancelled_.empty(), UnlockReason::kCancelled)) return true;
  if (wants(!may_go_on, UnlockReason::kNegotiation)) return true;
  if (votes_.voted()) {
    const double limit = std::min(kVoteLimit, config_.stall_check_time / 4);
    return wants(config_.stall_check && now - voted_at_ >= limit, UnlockReason::kVotesLate);
  }
  // The term ends on all ranks in the same round.
  if (wants(step_->term > 0 && rounds_ >= step_->term, UnlockReason::kTermOver)) return true;
  const double limit =
      std::clamp(kGapFactor * gaps_.longest(), kShortestFillLimit, kLongestFillLimit);
  const bool late = collected_.waiting > 0 && now - gaps_.last() >= limit;
  return wants(late, UnlockReason::kBucketLate);
}

VoteRounds::Wish StepRunner::WishAt(double now, bool may_go_on, UnlockReason* why) const {
  using Wish = VoteRounds::Wish;
  if (!WantsToEnd(now, may_go_on, why)) return Wish::kContinue;
  return *why == UnlockReason::kBucketLate ? Wish::kAbortLate : Wish::kAbort;
}

StepRunner::Rest StepRunner::TakeRest() {
  Rest rest;
  rest.rounds = rounds_;
  rest.late = votes_.aborted_late();
  rest.step_seconds = periods_.typical();
  TakeAll(&rest.entries);
  SortById(&rest.entries);
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
  UnlockReason why = UnlockReason::kAnotherRank;
  if (WishAt(now, true, &why) == VoteRounds::Wish::kAbort) return now;
  // If only one entry is missing, it completes its bucket and wakes the engine.
  const bool unseen = bucket().count > 1 || collected_.waiting > 0;
  return unseen ? now + kLookSeconds : std::numeric_limits<double>::infinity();
}

std::string StepRunner::doing() const {
  return Describe(*step_->collectives[static_cast<size_t>(bucket().first)].request);
}

// Reports ranks that do not vote: a rank whose engine runs votes soon, at least to abort. Only the
// first waiting rank reports; for ranks of another host, that host's leader knows their names.
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

// Reports which rank keeps this one, which has just voted, waiting.
void StepRunner::ObserveWait() {
  if (observer_ == nullptr || !observer_->on()) return;
  waits_for_ = OneMissing();
  for (const Agreed& agreed : held_) observer_->WaitedFor(agreed.entry.id, waits_for_);
}

// Returns the only rank whose vote is missing; kSeveralRanks if there are more or this rank cannot
// tell. It can tell a rank of another host only if that is the only rank outside this host.
int StepRunner::OneMissing() const {
  const std::vector<int> missing = votes_.RanksWithoutVote();
  if (missing.size() != 1) return kSeveralRanks;
  const int here = topology_.host_of[topology_.rank];
  const auto elsewhere = std::count_if(topology_.host_of.begin(), topology_.host_of.end(),
                                       [here](int host) { return host != here; });
  const bool sees = elsewhere == 0 || (elsewhere == 1 && topology_.host_of[missing[0]] != here);
  return sees ? missing[0] : kSeveralRanks;
}

// Reports how the round ended for which this rank has `waited`.
void StepRunner::ObserveEnd(double waited, VoteRounds::Progress progress, UnlockReason why) {
  if (observer_ == nullptr || !observer_->on()) return;
  if (waited > 0) observer_->Waited(waits_for_, waited);
  if (progress == VoteRounds::Progress::kAborted) {
    observer_->StepUnlocked(why);
  } else {
    observer_->BucketRuns();
  }
}

// Reports the votes of this host that exist when this rank votes, and all others when the round is
// `decided`.
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
