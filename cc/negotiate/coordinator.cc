#include "cc/negotiate/coordinator.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "cc/negotiate/agree.h"
#include "cc/negotiate/process_set_rules.h"

namespace tfhvd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// How long ranks that leave a job after a stall ended it wait for the others to leave. The others
// have already been waited for as long as the limit allows.
constexpr double kLeaveSeconds = 1.0;

// Whether a collective may get a number of the cache: it must mean the same each time.
bool MayRepeat(Collective kind) {
  return kind != Collective::kJoin && kind != Collective::kAddProcessSet &&
         kind != Collective::kRemoveProcessSet;
}

bool AreSeveral(const std::vector<std::string>& hosts) {
  return std::any_of(hosts.begin(), hosts.end(),
                     [&hosts](const std::string& host) { return host != hosts.front(); });
}

}  // namespace

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      sets_(size(), options_.generation),
      tally_(size()),
      ids_(options_.cache_capacity, tally_.idle()),
      capacity_monitor_(options_.cache_capacity),
      error_epoch_(size()),
      seen_(options_.hosts.size(), 0),
      left_(options_.hosts.size(), false),
      detector_(AreSeveral(options_.hosts)),
      lock_settings_(options_.lock),
      liveness_probe_(options_.hosts, options_.stall_check ? options_.stall_check_time : 0.0,
                      options_.stall_check ? options_.stall_shutdown_time : 0.0),
      outbox_(options_.hosts.size()) {}

Status Coordinator::Take(int from, Announcement a, double now) {
  seen_[from] = std::max(seen_[from], a.seen);
  liveness_probe_.Answered(from);
  if (a.waited_ms > 0) {
    liveness_probe_.Waits(from, a.waits_in, static_cast<double>(a.waited_ms) / 1000.0, now);
  }
  // All ranks unlock a step in the same round, and the first message of each reports it.
  if (a.ended && locked_) {
    detector_.Ended(a.ended_rounds, a.ended_late);
    lock_settings_.Ended(a.ended_late, static_cast<double>(a.ended_step_ns) / 1e9);
    locked_ = false;
  }
  // Announcements before the rank saw the lock are void (invariant 6).
  if (a.seen >= locked_at_) TFHVD_RETURN_IF_ERROR(TakeAnnounced(from, &a, now));
  if (a.leaving) RankLeft(from, a.leave_reason, now);
  for (const Key& key : ids_.Forget(seen_)) tally_.Drop(key);
  return Status::Ok();
}

Status Coordinator::TakeAnnounced(int from, Announcement* a, double now) {
  // Withdrawals first: the rank may announce the key again in the same message.
  for (const Key& key : a->withdrawn) Withdraw(from, key);
  for (CacheId id : a->known) {
    Slot* const slot = ids_.Find(id);
    if (slot == nullptr) {
      return Status::Internal("rank " + std::to_string(from) +
                              " announced the unknown tensor number " + std::to_string(id));
    }
    TFHVD_RETURN_IF_ERROR(CheckAnnounced(*slot, from));
    if (sets_.Find(slot->key.process_set) == nullptr) {  // the rank still knows it by number
      Refuse(from, slot->key);
      continue;
    }
    tally_.AddById(slot, from, seen_[from], now);
    (void)FailIfLost(slot);
  }
  for (Request& request : a->requests) {
    Slot* const slot = SlotOf(request.key);
    if (slot == nullptr) {
      Refuse(from, request.key);
      continue;
    }
    TFHVD_RETURN_IF_ERROR(CheckAnnounced(*slot, from));
    tally_.AddInFull(slot, from, std::move(request), seen_[from], now);
    (void)FailIfLost(slot);
  }
  return Status::Ok();
}

// Returns null if its process set is gone.
Slot* Coordinator::SlotOf(const Key& key) {
  ProcessSetTable::Members members = sets_.Find(key.process_set);
  return members == nullptr ? nullptr : tally_.Open(key, std::move(members));
}

Status Coordinator::CheckAnnounced(const Slot& slot, int rank) const {
  if (!std::binary_search(slot.members->begin(), slot.members->end(), rank)) {
    return Status::Internal("rank " + std::to_string(rank) + " announced '" + slot.key.name +
                            "' of process set " + std::to_string(slot.key.process_set) +
                            ", which it is not in");
  }
  if (HasAnnounced(slot, rank)) {
    return Status::Internal("rank " + std::to_string(rank) + " announced '" + slot.key.name +
                            "' twice before it was decided");
  }
  return Status::Ok();
}

// Once the job has failed, announcements fail at once. REQUIRES: some rank announced the slot.
bool Coordinator::FailIfLost(Slot* slot) {
  if (!fatal_.ok()) Fail(slot, FatalStatusOf(*slot));
  return !fatal_.ok();
}

// The rank could not know yet that the process set is gone.
void Coordinator::Refuse(int rank, const Key& key) {
  Agreement::Item item;
  item.decision.key = key;
  item.decision.verdict = ProcessSetRemoved(key);
  outbox_.Of(rank)->items.push_back(std::move(item));
}

void Coordinator::Withdraw(int rank, const Key& key) {
  Slot* const slot = tally_.Find(key);
  if (slot == nullptr || !HasAnnounced(*slot, rank)) return;  // decided in the meantime
  outbox_.Of(rank)->withdrawn.push_back(key);
  tally_.Remove(slot, rank);
  // It may have been complete when the job failed; now it can no longer complete.
  if (slot->count == 0 || FailIfLost(slot)) tally_.DropIfEmpty(slot);
}

void Coordinator::RankLeft(int rank, const std::string& reason, double now) {
  if (left_[rank]) return;
  left_[rank] = true;
  if (num_left_++ == 0) first_left_at_ = now;
  End(Status::Aborted("rank " + std::to_string(rank) + " (host " + options_.hosts[rank] +
                      ") has left the job: " +
                      (reason.empty() ? "it called shutdown or its program ended" : reason)));
}

// Ends all agreement: ranks that wait for others get the reason, which is the first one.
void Coordinator::End(Status why) {
  if (fatal_.ok()) fatal_ = std::move(why);
  tally_.WaitForEveryone();
  tally_.ForEach([this](Slot* slot) {
    if (slot->count > 0 && !slot->complete) Fail(slot, FatalStatusOf(*slot));
  });
}

// REQUIRES: some rank announced the slot.
Status Coordinator::FatalStatusOf(const Slot& slot) const {
  return Status(fatal_.code(), Describe(RequestOf(slot, FirstAnnounced(slot))) +
                                   " cannot be completed: " + fatal_.message());
}

// Sends the error to all ranks that announced the slot; clears the tally.
void Coordinator::Fail(Slot* slot, const Status& why) {
  Agreement::Item item;
  item.decision.key = slot->key;
  item.decision.verdict = why;
  Tell(*slot, {}, std::move(item));
  tally_.Clear(slot);
}

std::vector<std::pair<int, SharedAgreement>> Coordinator::Step(double now) {
  CheckStalls(now);
  CallTheRoll(now);
  const bool batching = now < tally_.complete_since() + options_.cycle_time;
  if (tally_.complete() > 0 && !HasError() && !batching) DecideComplete(now);
  if (num_left_ == size() && !goodbye_sent_ && tally_.complete() == 0) {
    goodbye_sent_ = true;
    outbox_.All([](Agreement* a) { a->everyone_left = true; });
  }
  return outbox_.Take(sequence_);
}

void Coordinator::DecideComplete(double now) {
  ++sequence_;
  tally_.BeginRound();
  while (Slot* const slot = tally_.NextComplete()) Decide(slot, now);
  LockIfRepeating();
}

void Coordinator::Decide(Slot* slot, double now) {
  slot->last_used = sequence_;
  const std::vector<int> absent = tally_.Absent(*slot);
  Agreement::Item item;
  item.waited_for = slot->waited_for;
  const bool repeat = slot->requests.empty() && slot->evicted_at == 0 && absent.empty();
  Detect(*slot, repeat);
  if (repeat) {
    item.id = slot->id;
    item.repeat = true;
    Tell(*slot, absent, std::move(item));
    return tally_.Clear(slot);
  }

  item.decision = Compare(*slot, absent);
  item.decision.stopping = !absent.empty() && tally_.joined().AskToStop(slot->key.process_set);
  const Request request = RequestOf(*slot, FirstAnnounced(*slot));
  if (!item.decision.verdict.ok()) {
    error_epoch_.Begin(sequence_, now);
    for (int r : *slot->members) {
      if (!HasAnnounced(*slot, r)) continue;
      error_epoch_.Concerns(r);
      outbox_.Confirm(r);
    }
  } else if (!MayRepeat(request.kind)) {
    TakeEffect(request, &item.decision);
  } else if (absent.empty() && !item.decision.stop_requested) {  // otherwise not reused
    GiveNumber(slot, request, item.decision);
    item.id = slot->id;
  }
  if (!absent.empty()) item.request = request;
  Tell(*slot, absent, std::move(item));
  tally_.Clear(slot);
  tally_.DropIfEmpty(slot);
}

// Lets ranks announce the collective by a number from here on, while there are free numbers.
void Coordinator::GiveNumber(Slot* slot, const Request& request, const Decision& decision) {
  slot->request = request;
  slot->decision = decision;
  if (slot->id == kNoId || slot->evicted_at != 0) {
    Warn(capacity_monitor_.SawWithoutNumber(slot->key));
  }
  const CacheId evicted = ids_.Assign(slot, sequence_);
  if (evicted == kNoId) return;
  outbox_.All([evicted](Agreement* a) { a->evicted.push_back(evicted); });
}

// Sends the decision to the ranks that announced the slot, and to absent ranks as placeholders.
void Coordinator::Tell(const Slot& slot, const std::vector<int>& absent, Agreement::Item item) {
  for (int r : absent) {
    if (!item.decision.verdict.ok()) break;
    outbox_.Of(r)->items.push_back(item);
    outbox_.Of(r)->items.back().placeholder = true;
  }
  item.request = Request();
  if (ConcernsAll(slot)) {
    return outbox_.All([&item](Agreement* a) { a->items.push_back(item); });
  }
  for (int r : *slot.members) {
    if (HasAnnounced(slot, r)) outbox_.Of(r)->items.push_back(item);
  }
}

Decision Coordinator::Compare(const Slot& slot, const std::vector<int>& absent) {
  std::deque<Request> by_number;
  std::vector<const Request*> requests;
  std::vector<int> ranks;
  for (int r : *slot.members) {
    if (!HasAnnounced(slot, r)) continue;
    ranks.push_back(r);
    if (slot.announced[static_cast<size_t>(r)] == Slot::Announced::kInFull) {
      requests.push_back(&RequestInFull(slot, r));
    } else {
      requests.push_back(&by_number.emplace_back(RequestOf(slot, r)));
    }
  }
  Decision decision = Agree(requests, ranks, absent);
  if (decision.verdict.ok()) {
    decision.verdict = CheckProcessSetChange(sets_, *requests[0], absent, size());
  }
  return decision;
}

// REQUIRES: the decision is ok, and of a kind that changes later agreements.
void Coordinator::TakeEffect(const Request& request, Decision* decision) {
  if (request.kind == Collective::kJoin) {
    decision->number = tally_.FinishJoin(request.key.process_set);
    return;
  }
  const std::vector<int> members = Ranks(request.members);
  if (request.kind == Collective::kAddProcessSet) {
    decision->number = sets_.NextId();
    sets_.Put(static_cast<int32_t>(decision->number), members);
    return;
  }
  const int32_t id = sets_.IdOf(members);
  decision->number = id;
  RemoveProcessSet(id);
}

void Coordinator::RemoveProcessSet(int32_t id) {
  sets_.Remove(id);
  std::vector<Slot*> gone;
  tally_.ForEach([&](Slot* slot) {
    if (slot->key.process_set == id) gone.push_back(slot);
  });
  for (Slot* slot : gone) {
    if (slot->count > 0) Fail(slot, ProcessSetRemoved(slot->key));
    if (slot->id != kNoId && slot->evicted_at == 0) {
      for (int r : *slot->members) outbox_.Of(r)->evicted.push_back(slot->id);
      ids_.Evict(slot, sequence_);
    }
    tally_.DropIfEmpty(slot);
  }
}

// A schedule concerns all ranks and repeats: other collectives are no part of it.
void Coordinator::Detect(const Slot& slot, bool repeat) {
  if (!repeat || slot.key.process_set != 0) return detector_.Disturbed();
  int64_t bytes = 0;
  for (const TensorSpec& t : slot.request.tensors)
    bytes += NumElements(t.shape) * ItemSize(t.dtype);
  const bool fusible = slot.request.kind == Collective::kAllReduce;
  detector_.Saw({slot.id, bytes, sequence_, slot.known_before, fusible, slot.request.device});
}

// With the lock, the ranks get their entries back, as if they had not announced them (invariant 6).
void Coordinator::LockIfRepeating() {
  if (!options_.may_lock || error_epoch_.sequence() == sequence_ || !fatal_.ok() ||
      !detector_.Repeats())
    return;
  const StepTuner::Block block = lock_settings_.Next(detector_, ids_);
  const std::vector<Bucket>& schedule = detector_.Lock(block.settings.bucket_bytes, block.steps);
  outbox_.All([&](Agreement* a) {
    a->lock = schedule;
    a->lock_term = detector_.term();
    a->lock_fusion = block.settings.fusion;
  });
  locked_at_ = sequence_;
  locked_ = true;
  tally_.ClearAll();
}

// Returns whether a failure is unconfirmed, so that nothing may be decided (invariant 3).
bool Coordinator::HasError() { return !error_epoch_.Missing(seen_, left_).empty(); }

double Coordinator::wake_at() const {
  double at = kNever;
  const bool error = error_epoch_.sequence() != 0;
  if (tally_.complete() > 0 && !error) at = tally_.complete_since() + options_.cycle_time;
  if (options_.stall_check && (tally_.open() > 0 || error)) at = std::min(at, next_stall_check_);
  return std::min(at, liveness_probe_.wake_at());
}

Status Coordinator::lost(double now) const {
  const bool some_left = num_left_ > 0 && num_left_ < size();
  if (stalled_ && some_left && now - first_left_at_ >= kLeaveSeconds) return fatal_;
  return liveness_probe_.Check(now);
}

void Coordinator::CallTheRoll(double now) {
  for (const int rank : liveness_probe_.Ask(now)) outbox_.Confirm(rank);
  Warn(liveness_probe_.TakeWarning(now));
}

// Adds a text to TakeWarning's result; "" adds nothing.
void Coordinator::Warn(const std::string& text) {
  if (!warning_.empty() && !text.empty()) warning_ += "\n";
  warning_ += text;
}

void Coordinator::CheckStalls(double now) {
  const bool anything = tally_.open() > 0 || error_epoch_.sequence() != 0;
  if (!options_.stall_check || !anything || now < next_stall_check_) return;
  const StallTimes times{options_.stall_check_time, options_.stall_shutdown_time};
  // Often enough for either limit.
  double interval = times.check / 4;
  if (times.shutdown > 0) interval = std::min(interval, times.shutdown / 8);
  next_stall_check_ = now + interval;

  const StallReport report = ReportStalls(&tally_, times, options_.hosts, now);
  // Sends a sign of life; otherwise these ranks would think that rank 0 is gone.
  for (const int r : report.anxious) outbox_.Confirm(r);
  const std::string lines = report.lines + UnconfirmedText(now);
  if (!lines.empty()) Warn("some ranks wait for others:" + lines + report.cause);
  if (report.fatal.empty()) return;
  stalled_ = true;
  End(Status::Aborted(report.fatal));
}

// Reports ranks that do not confirm a failure (invariant 3) and so block all ranks; "" if there is
// nothing to report.
std::string Coordinator::UnconfirmedText(double now) {
  const std::vector<int> missing = error_epoch_.Missing(seen_, left_);
  if (missing.empty()) return "";
  if (now - error_epoch_.since() >= options_.stall_check_time / 2) {
    for (int r = 1; r < size(); ++r) outbox_.Confirm(r);
  }
  if (!error_epoch_.Report(now, options_.stall_check_time)) return "";
  return "\n  a collective failed " + SecondsText(now - error_epoch_.since()) + " ago, and ranks " +
         RankList(missing) + " (first on host " + options_.hosts[missing[0]] +
         ") have not acknowledged it: no other collective can start until they do";
}

}  // namespace tfhvd
