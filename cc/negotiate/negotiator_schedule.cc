// The Negotiator's part while a schedule is locked.
#include <algorithm>
#include <limits>
#include <utility>

#include "cc/comm/stall_guard.h"
#include "cc/negotiate/agree.h"
#include "cc/negotiate/negotiator.h"

namespace tfhvd {
namespace {

// A locked schedule is given up where a bucket does not fill for this long after the last entry, or
// this many times the longest gap between entries of late; and where others do not vote for so
// long, so that the coordinator can say who is missing. Both cost little: three steps later it is
// back.
constexpr double kLeastPatience = 0.1;  // seconds
constexpr double kMostPatience = 2.0;
constexpr double kGapFactor = 4.0;
constexpr double kVotePatience = 1.0;

// While a bucket fills, the engine is woken once the entries are there that it lacks; it looks this
// often whether others have come.
constexpr double kFillSeconds = 0.002;

// And so often where none has come that it knows of: those that a schedule expects do not wake it
// before their bucket is full.
constexpr double kUnseenSeconds = 0.02;

// Of the larger of input and result.
int64_t BytesOf(const ResponseCache::Record& record) {
  int64_t bytes = 0;
  for (size_t t = 0; t < record.request->tensors.size(); ++t) {
    const TensorSpec& spec = record.request->tensors[t];
    int64_t rows = 0;
    if (!record.decision.first_dims.empty()) {
      for (int64_t dim : record.decision.RowsOfRanks(t)) rows += dim;
    }
    bytes += std::max(NumElements(spec.shape) * ItemSize(spec.dtype), rows * RowBytes(spec));
  }
  return bytes;
}

}  // namespace

// From here on entries are matched to the schedule. What was announced and is not agreed counts as
// not announced, here and at the coordinator.
Status Negotiator::BeginSchedule(std::vector<Bucket> buckets, int64_t term, Outcome* outcome) {
  next_.known.clear();
  next_.requests.clear();
  next_.withdrawn.clear();
  DropWithdrawn(outcome);
  TFHVD_RETURN_IF_ERROR(LookUp(buckets));
  schedule_.Begin(std::move(buckets));
  term_ = term;
  deviates_ = false;
  votes_reported_ = false;
  last_added_ = now_;
  for (auto& [key, pending] : pending_) {
    if (!pending.entries.empty()) Announce(&pending);
  }
  return Status::Ok();
}

Status Negotiator::LookUp(const std::vector<Bucket>& buckets) {
  scheduled_.clear();
  bucket_bytes_.clear();
  for (const Bucket& bucket : buckets) {
    int64_t bytes = 0;
    for (CacheId id : bucket) {
      const ResponseCache::Record* record = nullptr;
      TFHVD_RETURN_IF_ERROR(FindRecord(id, &record));
      bytes += BytesOf(*record);
      Node& pending = *pending_.try_emplace(record->request->key).first;
      pending.second.known = true;
      scheduled_.push_back({id, record, &pending});
    }
    bucket_bytes_.push_back(bytes);
  }
  return Status::Ok();
}

// Whether the schedule has this very request, so that nothing needs to be looked up.
bool Negotiator::Expected(const Entry& entry) const {
  if (!schedule_.active() || entry.schedule != schedule_.begun()) return false;
  const auto index = static_cast<size_t>(entry.index);
  return index < scheduled_.size() &&
         scheduled_[index].record->request.get() == entry.request.get();
}

// Entries that were to be withdrawn, and that nobody else counts on any more.
void Negotiator::DropWithdrawn(Outcome* outcome) {
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const auto next = std::next(pending);
    if (pending->second.withdrawing) {
      outcome->failed.emplace_back(std::move(pending->second.entries.front()),
                                   Status::Cancelled("the operation was cancelled"));
      Pop(&*pending);
    }
    pending = next;
  }
}

// Announces everything, in the order of submission.
void Negotiator::EndSchedule(Outcome* outcome) {
  next_.ended = true;
  next_.ended_rounds = schedule_.rounds();
  next_.ended_late = schedule_.ended_late();
  last_received_ = now_;
  DropWithdrawn(outcome);
  std::vector<Pending*> waiting;
  for (auto& [key, pending] : pending_) {
    if (!pending.entries.empty()) waiting.push_back(&pending);
  }
  std::sort(waiting.begin(), waiting.end(), [](const Pending* a, const Pending* b) {
    return a->entries.front().id < b->entries.front().id;
  });
  for (Pending* pending : waiting) Announce(pending);
}

// Tells of the votes of this host that are there when this rank has cast its own, and of the others
// when the round is `decided`.
void Negotiator::ObserveVotes(const Bucket& bucket, bool decided) {
  if (observer_ == nullptr || !observer_->on()) return observed_.clear();
  std::vector<bool> there(static_cast<size_t>(topology_.size), true);
  if (!decided) {
    const int here = topology_.host_of[topology_.rank];
    for (int rank = 0; rank < topology_.size; ++rank) there[rank] = topology_.host_of[rank] == here;
    for (const int rank : schedule_.RanksWithoutVote()) there[rank] = false;
  }
  for (int rank = 0; rank < topology_.size; ++rank) {
    if (!there[rank] || (!observed_.empty() && observed_[rank])) continue;
    for (const CacheId id : bucket) {
      const Request& request = *cache_.Get(id)->request;
      observer_->RankReady(request.key, request.kind, rank, true);
    }
  }
  observed_ = std::move(there);
  if (decided) observed_.clear();
}

Status Negotiator::RunSchedule(double now, Outcome* outcome) {
  while (schedule_.active()) {
    const bool voted = schedule_.voted();
    const LockedSchedule::Progress round =
        schedule_.Step(WishOfSchedule(now), outcome->buckets_left > 0);
    if (schedule_.voted() && !voted) {
      voted_at_ = now;
      votes_reported_ = false;
      ObserveVotes(schedule_.current(), false);
    }
    if (round == LockedSchedule::Progress::kWait) break;
    outcome->progress = true;
    if (round == LockedSchedule::Progress::kOver) {
      observed_.clear();
      EndSchedule(outcome);
    } else {
      ObserveVotes(schedule_.due(), true);
      TFHVD_RETURN_IF_ERROR(TakeBucket(schedule_.due(), outcome));
      --outcome->buckets_left;
    }
  }
  return Status::Ok();
}

Status Negotiator::TakeBucket(const Bucket& bucket, Outcome* outcome) {
  std::vector<Agreed> together;
  together.reserve(bucket.size());
  auto index = static_cast<size_t>(schedule_.first_due());
  for (CacheId id : bucket) {
    if (index < scheduled_.size()) {
      Take(*scheduled_[index].record, scheduled_[index].pending, &together);
    } else {
      TFHVD_RETURN_IF_ERROR(TakeRepeated(id, &together));
    }
    ++index;
  }
  outcome->agreed.push_back(std::move(together));
  last_added_ = now_;
  if (schedule_.current_index() == 0) gaps_.StepRan();
  return Status::Ok();
}

LockedSchedule::Wish Negotiator::WishOfSchedule(double now) const {
  if (deviates_ || !next_.empty()) return LockedSchedule::Wish::kAbort;
  if (schedule_.voted()) {
    const double patience = std::min(kVotePatience, config_.stall_check_time / 4);
    const bool overdue = config_.stall_check && now - voted_at_ >= patience;
    return overdue ? LockedSchedule::Wish::kAbort : LockedSchedule::Wish::kContinue;
  }
  if (HasServed()) return LockedSchedule::Wish::kAbort;
  const double patience = std::clamp(kGapFactor * gaps_.longest(), kLeastPatience, kMostPatience);
  const bool late = !idle() && now - last_added_ >= patience;
  return late ? LockedSchedule::Wish::kAbortLate : LockedSchedule::Wish::kContinue;
}

// Whether the schedule has served its term. That is so on all ranks in the same round.
bool Negotiator::HasServed() const { return term_ > 0 && schedule_.rounds() >= term_; }

// A rank whose engine runs answers soon, if only with the end. The first of those who wait reports
// the others; of another host's, a leader knows who they are.
Status Negotiator::CheckVotes(double now) {
  if (!config_.stall_check || !schedule_.voted()) return Status::Ok();
  const double waited = now - voted_at_;
  if (!schedule_.lacks_votes()) return Status::Ok();
  const ResponseCache::Record* record = cache_.Get(schedule_.current().front());
  TFHVD_RETURN_IF_ERROR(ReportWait(Describe(*record->request), waited, now));
  const bool over = config_.stall_shutdown_time > 0 &&
                    waited >= config_.stall_shutdown_time + StallGuard::kGraceSeconds;
  if (!over && waited < config_.stall_check_time) return Status::Ok();
  const std::vector<int> missing = schedule_.RanksWithoutVote();
  const std::string who = missing.empty() ? "ranks of other hosts, which a rank there names,"
                                          : "ranks " + RankList(missing) + " (first on host " +
                                                topology_.hosts[missing[0]] + ")";
  const std::string text =
      Describe(*record->request) + " has waited " + std::to_string(static_cast<int>(waited)) +
      " s: " + who + " do not answer. Their processes may be stopped (kill -CONT) or cut off.";
  if (over) return Status::Aborted(text);
  if (missing.empty()) return Status::Ok();
  if (!votes_reported_ && schedule_.FirstToWait()) log_.Warning(text);
  votes_reported_ = true;
  return Status::Ok();
}

int Negotiator::wanted() const {
  return schedule_.active() && !schedule_.voted() ? std::max(1, schedule_.missing()) : 1;
}

ScheduledRequests Negotiator::scheduled() const {
  ScheduledRequests scheduled{schedule_.begun(), {}};
  for (const Scheduled& collective : scheduled_) {
    scheduled.requests.push_back(collective.record->request);
  }
  return scheduled;
}

int64_t Negotiator::completes() const {
  const bool lacks = schedule_.active() && !schedule_.voted() && schedule_.missing() > 0;
  return lacks ? bucket_bytes_[schedule_.current_index()] : -1;
}

// When RunSchedule has something to do though nothing arrives.
double Negotiator::ScheduleWakesAt(double now) const {
  if (schedule_.voted()) return now + kVotePatience / 4;
  if (WishOfSchedule(now) == LockedSchedule::Wish::kAbort) return now;
  if (!idle()) return now + kFillSeconds;
  return wanted() > 1 ? now + kUnseenSeconds : std::numeric_limits<double>::infinity();
}

}  // namespace tfhvd
