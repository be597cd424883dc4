#include "cc/negotiate/negotiator.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "cc/comm/stall_guard.h"
#include "cc/flow/codec.h"
#include "cc/negotiate/agree.h"
#include "cc/negotiate/check_entry.h"
#include "cc/negotiate/liveness_probe.h"
#include "cc/negotiate/make_locked_step.h"

namespace tfhvd {
namespace {

constexpr int kCoordinatorRank = 0;

// The coordinator reports stalled tensors itself. A rank that receives nothing for so many times
// the stall check's time reports that the coordinator may be missing.
constexpr double kMissingFactor = 1.5;

Status WasCancelled() { return Status::Cancelled("the operation was cancelled"); }

}  // namespace

void Negotiator::Add(Entry&& entry, double now, Outcome* outcome) {
  now_ = now;
  Status valid = CheckEntry(*sets_, topology_.rank, &entry);
  if (!valid.ok()) {
    outcome->failed.emplace_back(std::move(entry), std::move(valid));
    return;
  }
  if (idle()) last_received_ = now;
  if (!pending_.Add(&entry)) RefuseSecond(std::move(entry), outcome);
}

void Negotiator::Cancel(EntryId id, Outcome* outcome) {
  std::optional<Entry> entry = pending_.Cancel(id);
  if (entry.has_value()) outcome->failed.emplace_back(std::move(*entry), WasCancelled());
}

void Negotiator::RefuseSecond(Entry&& entry, Outcome* outcome) const {
  Status why = Status::InvalidArgument(
      Describe(*entry.request) + " was submitted on rank " + std::to_string(topology_.rank) +
      " while an earlier one of that name was still in flight. Give each collective that is in "
      "flight at the same time a name of its own (name=...).");
  outcome->failed.emplace_back(std::move(entry), std::move(why));
}

void Negotiator::Leave(const std::string& reason) {
  if (left_) return;
  left_ = true;
  next_.leaving = true;
  next_.leave_reason = reason;
}

Status Negotiator::SendAnnouncement() {
  if (locked_) return answer_owed_ ? SendWord("", 0.0) : Status::Ok();
  if (next_.empty() && !answer_owed_ && !confirm_owed()) return Status::Ok();
  next_.seen = said_seen_ = seen_;
  answer_owed_ = false;
  Announcement announcement;
  std::swap(announcement, next_);
  TFHVD_RETURN_IF_ERROR(channel_->Send(kCoordinatorRank, Encode(announcement)));
  config_.failpoints.Hit(Failpoint::kAnnounced);
  return Status::Ok();
}

// Reports only that this rank runs, and how long it has waited in a collective. It does not report
// agreements as seen, because their consequences (withdrawals) must be announced first. So it
// confirms nothing.
Status Negotiator::SendWord(const std::string& what, double waited) {
  answer_owed_ = false;
  Announcement word;
  word.seen = said_seen_;
  word.waited_ms = static_cast<int64_t>(waited * 1000.0);
  word.waits_in = what;
  return channel_->Send(kCoordinatorRank, Encode(word));
}

// Keeps the messages that have arrived.
Status Negotiator::TakeMessages(Outcome* outcome) {
  while (true) {
    std::optional<Message> message;
    TFHVD_RETURN_IF_ERROR(channel_->Receive(&message));
    if (!message.has_value()) return Status::Ok();
    if (outcome != nullptr) outcome->progress = true;
    last_received_ = now_;
    missing_reported_ = false;
    if (IsAlarm(message->bytes)) {
      Alarm alarm;
      TFHVD_RETURN_IF_ERROR(Decode(message->bytes, &alarm));
      alarmed_ = true;
      return alarm.why;
    }
    Agreement agreement;
    TFHVD_RETURN_IF_ERROR(Decode(message->bytes, &agreement));
    if (agreement.confirm) answer_owed_ = true;
    arrived_.push_back(std::move(agreement));
  }
}

Status Negotiator::Step(double now, Outcome* outcome) {
  now_ = now;
  if (!locked_ && (!next_.empty() || answer_owed_ || confirm_owed())) outcome->progress = true;
  TFHVD_RETURN_IF_ERROR(SendAnnouncement());
  TFHVD_RETURN_IF_ERROR(TakeMessages(outcome));
  while (!arrived_.empty()) {
    Agreement agreement = std::move(arrived_.front());
    arrived_.pop_front();
    TFHVD_RETURN_IF_ERROR(TakeAgreement(std::move(agreement), outcome));
  }
  return locked_ ? Status::Ok() : CheckCoordinator(now);
}

Status Negotiator::Poll(double now, bool* anything) {
  now_ = now;
  TFHVD_RETURN_IF_ERROR(TakeMessages(nullptr));
  *anything = !arrived_.empty() || answer_owed_;
  return Status::Ok();
}

Status Negotiator::OnWait(const std::string& what, double waited, double now) {
  now_ = now;
  TFHVD_RETURN_IF_ERROR(TakeMessages(nullptr));
  return ReportWait(what, waited, now);
}

// The coordinator starts its liveness probe when a continuing wait is reported to it.
Status Negotiator::ReportWait(const std::string& what, double waited, double now) {
  const double began = now - waited;
  if (began > waiting_at_) wait_reported_ = last_received_ = began;  // another wait than the last
  waiting_at_ = now;
  const double check = config_.stall_check ? config_.stall_check_time : 0.0;
  const double shutdown = config_.stall_check ? config_.stall_shutdown_time : 0.0;
  const double interval = LivenessProbe::Interval(check, shutdown);
  if (answer_owed_ || std::min(waited, now - wait_reported_) >= interval) {
    wait_reported_ = now;
    TFHVD_RETURN_IF_ERROR(SendWord(what, waited));
  }
  if (topology_.rank == kCoordinatorRank || check <= 0) return Status::Ok();
  // The rank that passes messages on has then noticed and reported that rank 0 is missing.
  const int whom = channel_->route();
  const double grace = whom == kCoordinatorRank ? 0.0 : StallGuard::kGraceSeconds;
  const double missing_for = now - last_received_;
  const bool over = shutdown > 0 && waited >= shutdown + grace && missing_for >= shutdown / 2;
  const bool worth_saying = waited >= check + grace && missing_for >= check / 2;
  if (!over && (missing_reported_ || !worth_saying)) return Status::Ok();
  const std::string text =
      "rank " + std::to_string(whom) + " (host " + topology_.hosts[static_cast<size_t>(whom)] +
      ") has not answered for " + std::to_string(static_cast<int>(missing_for)) +
      " s, while rank " + std::to_string(topology_.rank) + " has waited " +
      std::to_string(static_cast<int>(waited)) + " s in the middle of " + what +
      ". Its process may be stopped (kill "
      "-CONT) or cut off from the network.";
  if (over) return Status::Aborted(text);
  log_.Warning(text);
  missing_reported_ = true;
  return Status::Ok();
}

Status Negotiator::TakeAgreement(Agreement agreement, Outcome* outcome) {
  seen_ = std::max(seen_, agreement.sequence);
  if (agreement.confirm) to_confirm_ = seen_;
  std::vector<Agreed> together;
  for (Agreement::Item& item : agreement.items) {
    const int last = item.waited_for;
    const size_t before = together.size();
    TFHVD_RETURN_IF_ERROR(TakeItem(std::move(item), &together, outcome));
    if (together.size() > before) TellOfWait(together.back().entry, last);
  }
  const FusionLimits fusion{config_.fusion_threshold, config_.alone_bytes};
  if (!together.empty()) {
    outcome->agreed.push_back({std::move(together), fusion});
    config_.failpoints.Hit(Failpoint::kDecisionTaken);
  }
  for (CacheId id : agreement.evicted) pending_.Forget(id);
  for (const Key& key : agreement.withdrawn) {
    std::optional<Entry> entry = pending_.EndWithdrawal(key);
    if (!entry.has_value()) {
      return Status::Internal("the coordinator confirmed a withdrawal of '" + key.name +
                              "' that rank " + std::to_string(topology_.rank) + " did not ask for");
    }
    outcome->failed.emplace_back(std::move(*entry), WasCancelled());
  }
  if (!agreement.lock.empty()) TFHVD_RETURN_IF_ERROR(Lock(agreement, outcome));
  if (agreement.everyone_left) over_ = true;
  return Status::Ok();
}

// Reports that all ranks have waited for `last`, except that rank itself.
void Negotiator::TellOfWait(const Entry& entry, int last) {
  if (last < 0 || last == topology_.rank || observer_ == nullptr || !observer_->on()) return;
  observer_->WaitedFor(entry.id, last);
}

Status Negotiator::TakeItem(Agreement::Item item, std::vector<Agreed>* together, Outcome* outcome) {
  if (item.repeat) return TakeRepeated(item.id, together);
  Decision decision = std::move(item.decision);
  if (item.placeholder) {
    Entry entry;
    entry.request = std::move(item.request);
    entry.placeholder = true;
    entry.inputs.assign(entry.request->tensors.size(), nullptr);
    entry.outputs.assign(entry.request->tensors.size(), nullptr);
    entry.done = [](const Status&) {};
    together->push_back({std::move(entry), std::move(decision)});
    return Status::Ok();
  }
  PendingEntries::Node* pending = nullptr;
  TFHVD_RETURN_IF_ERROR(FindSubmitted(decision.key, &pending));
  Entry entry;
  if (item.id != kNoId) {
    pending_.TakeFirst(pending, item.id, decision, &entry);
  } else {
    pending_.TakeFirst(pending, &entry);
  }
  if (decision.verdict.ok()) {
    together->push_back({std::move(entry), std::move(decision)});
  } else {
    outcome->failed.emplace_back(std::move(entry), std::move(decision.verdict).ByAgreement());
  }
  return Status::Ok();
}

// The decision is the last one under `id`.
Status Negotiator::TakeRepeated(CacheId id, std::vector<Agreed>* together) {
  const ResponseCache::Record* record = nullptr;
  TFHVD_RETURN_IF_ERROR(FindRecord(id, &record));
  PendingEntries::Node* pending = nullptr;
  TFHVD_RETURN_IF_ERROR(FindSubmitted(record->request->key, &pending));
  together->emplace_back();
  pending_.TakeFirst(pending, &together->back().entry);
  together->back().decision.first_dims = record->decision.first_dims;
  together->back().decision.weights = record->decision.weights;
  return Status::Ok();
}

Status Negotiator::FindRecord(CacheId id, const ResponseCache::Record** record) const {
  *record = pending_.cache().Get(id);
  if (*record != nullptr) return Status::Ok();
  return Status::Internal("rank " + std::to_string(topology_.rank) +
                          " does not know tensor number " + std::to_string(id));
}

Status Negotiator::FindSubmitted(const Key& key, PendingEntries::Node** pending) {
  *pending = pending_.Find(key);
  if (*pending != nullptr) return Status::Ok();
  return Status::Internal("'" + key.name + "' was decided, but rank " +
                          std::to_string(topology_.rank) + " has not submitted it");
}

// Announcements that are not agreed on become void, here and at the coordinator.
Status Negotiator::Lock(const Agreement& agreement, Outcome* outcome) {
  for (Entry& entry : pending_.UnannounceAll()) {
    outcome->failed.emplace_back(std::move(entry), WasCancelled());
  }
  LockedStep step;
  TFHVD_RETURN_IF_ERROR(MakeLockedStep(agreement, pending_.cache(), &step));
  locked_ = true;
  to_begin_ = std::make_shared<const LockedStep>(std::move(step));
  return Status::Ok();
}

void Negotiator::Unlock(int64_t rounds, bool late, double step_seconds, double now) {
  locked_ = false;
  next_.ended = true;
  next_.ended_rounds = rounds;
  next_.ended_late = late;
  next_.ended_step_ns = static_cast<int64_t>(step_seconds * 1e9);
  last_received_ = now;
}

// The coordinator cannot report itself as missing.
Status Negotiator::CheckCoordinator(double now) {
  if (!config_.stall_check || idle() || topology_.rank == kCoordinatorRank) {
    last_received_ = now;
    return Status::Ok();
  }
  const double missing_for = now - last_received_;
  // The limit may be the shorter of the two.
  const bool over = config_.stall_shutdown_time > 0 &&
                    missing_for >= config_.stall_shutdown_time + StallGuard::kGraceSeconds;
  if (!over && missing_for < config_.stall_check_time * kMissingFactor) return Status::Ok();
  const std::string text =
      "rank 0 (host " + topology_.hosts[kCoordinatorRank] + ") has not answered for " +
      std::to_string(static_cast<int>(missing_for)) + " s, while " +
      Describe(*pending_.any().request) + " and " + std::to_string(pending_.keys() - 1) +
      " more wait. Its process may be stopped or cut off from the network.";
  if (over) return Status::Aborted(text);
  if (!missing_reported_) log_.Warning(text);
  missing_reported_ = true;
  return Status::Ok();
}

bool Negotiator::expecting() const { return !locked_ && (!idle() || left_); }

double Negotiator::wake_at(double now) const {
  if (!next_.empty() || answer_owed_ || confirm_owed()) return now;
  const bool checks = config_.stall_check && !idle() && topology_.rank != kCoordinatorRank;
  return checks ? now + 1.0 : std::numeric_limits<double>::infinity();
}

}  // namespace tfhvd
