#include "cc/negotiate/coordinator.h"

#include <algorithm>
#include <utility>

#include "cc/negotiate/agree.h"
#include "cc/negotiate/process_set_rules.h"

namespace tfhvd {
Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      sets_(size()),
      ids_(options_.cache_capacity),
      capacity_monitor_(options_.cache_capacity),
      joined_(size()),
      error_epoch_(size()),
      seen_(options_.hosts.size(), 0),
      left_(options_.hosts.size(), false),
      roll_call_(options_.hosts, options_.stall_check ? options_.stall_check_time : 0.0,
                 options_.stall_check ? options_.stall_shutdown_time : 0.0),
      next_(options_.hosts.size()) {}

// Null where its process set is gone.
Slot* Coordinator::SlotOf(const Key& key) {
  const auto found = slots_.find(key);
  if (found != slots_.end()) return &found->second;
  ProcessSetTable::Members members = sets_.Find(key.process_set);
  if (members == nullptr) return nullptr;
  Slot& slot = slots_[key];
  slot.key = key;
  slot.members = std::move(members);
  slot.announced.assign(size(), Slot::Announced::kNot);
  return &slot;
}

Status Coordinator::Take(int from, Announcement a, double now) {
  seen_[from] = std::max(seen_[from], a.seen);
  roll_call_.Heard(from);
  if (a.waited_ms > 0) {
    roll_call_.Waits(from, a.waits_in, static_cast<double>(a.waited_ms) / 1000.0, now);
  }
  // All ranks unlock a step in the same round, and the first message of each says so.
  if (a.ended && locked_) detector_.Ended(a.ended_rounds, a.ended_late);
  if (a.ended) locked_ = false;
  if (a.seen < locked_at_) {  // invariant 6
    a.known.clear();
    a.requests.clear();
    a.withdrawn.clear();
  }
  // Withdrawals first: the same rank may announce the key anew in the same message.
  for (const Key& key : a.withdrawn) Withdraw(from, key);
  for (CacheId id : a.known) {
    Slot* slot = ids_.Find(id);
    if (slot == nullptr) {
      return Status::Internal("rank " + std::to_string(from) +
                              " announced the unknown tensor number " + std::to_string(id));
    }
    TFHVD_RETURN_IF_ERROR(Count(slot, from, Slot::Announced::kById, now));
  }
  for (Request& request : a.requests) {
    Slot* slot = SlotOf(request.key);
    if (slot == nullptr) {
      Refuse(from, request.key);
      continue;
    }
    if (slot->requests.empty()) slot->requests.resize(size());
    slot->requests[from] = std::move(request);
    TFHVD_RETURN_IF_ERROR(Count(slot, from, Slot::Announced::kInFull, now));
  }
  if (a.leaving && num_left_ == 0) first_left_at_ = now;
  if (a.leaving) RankLeft(from, a.leave_reason);
  for (const Key& key : ids_.Forget(seen_)) slots_.erase(key);
  return Status::Ok();
}

Status Coordinator::Count(Slot* slot, int rank, Slot::Announced how, double now) {
  if (!std::binary_search(slot->members->begin(), slot->members->end(), rank)) {
    return Status::Internal("rank " + std::to_string(rank) + " announced '" + slot->key.name +
                            "' of process set " + std::to_string(slot->key.process_set) +
                            ", which it is not in");
  }
  if (HasAnnounced(*slot, rank)) {
    return Status::Internal("rank " + std::to_string(rank) + " announced '" + slot->key.name +
                            "' twice before it was decided");
  }
  if (sets_.Find(slot->key.process_set) == nullptr) {  // known by number still
    Refuse(rank, slot->key);
    return Status::Ok();
  }
  slot->announced[rank] = how;
  if (observer_ != nullptr && observer_->on()) {
    const bool in_full = how == Slot::Announced::kInFull;
    const Request& request = in_full ? slot->requests[rank] : slot->request;
    observer_->RankReady(slot->key, request.kind, rank, false);
  }
  slot->known_before = std::max(slot->known_before, seen_[rank]);
  if (slot->count++ == 0) {
    slot->since = now;
    ++open_;
  }
  if (!fatal_.ok()) {
    FailOpen(slot, DoomOf(*slot));
    return Status::Ok();
  }
  if (how == Slot::Announced::kInFull && slot->requests[rank].kind == Collective::kJoin) {
    slot->joins = true;
    joined_.Join(rank, slot->key.process_set, slot->requests[rank].stops);
    for (auto& [key, other] : slots_) {
      if (!other.joins) CompleteIfPossible(&other, now);  // the end of all comes last
    }
  }
  CompleteIfPossible(slot, now);
  return Status::Ok();
}

// The rank could not know yet that the process set is gone.
void Coordinator::Refuse(int rank, const Key& key) {
  Agreement::Item item;
  item.decision.key = key;
  item.decision.verdict = ProcessSetRemoved(key);
  next_[rank].items.push_back(std::move(item));
}

// Members that have joined, and have not asked for the slot: they are not waited for.
std::vector<int> Coordinator::Absent(const Slot& slot) const {
  std::vector<int> absent;
  if (joined_.empty() || slot.joins) return absent;
  const std::vector<bool> joined = joined_.Of(slot.key.process_set);
  for (int r : *slot.members) {
    if (joined[r] && !HasAnnounced(slot, r)) absent.push_back(r);
  }
  return absent;
}

bool Coordinator::IsComplete(const Slot& slot) const {
  if (slot.count == 0) return false;
  const size_t needed = slot.members->size();
  if (static_cast<size_t>(slot.count) == needed) return true;
  return !joined_.empty() && static_cast<size_t>(slot.count) + Absent(slot).size() == needed;
}

void Coordinator::CompleteIfPossible(Slot* slot, double now) {
  if (slot->complete || !IsComplete(*slot)) return;
  slot->complete = true;
  --open_;
  if (num_ready_++ == 0) ready_since_ = now;
  slot->index = ready_.size();
  ready_.push_back(slot);
}

// Takes a complete slot out of the list that it is in; the others keep their indices.
void Coordinator::RemoveComplete(Slot* slot) {
  const size_t index = slot->index;
  if (index < ready_.size() && ready_[index] == slot) {
    ready_[index] = nullptr;
    if (--num_ready_ == 0) ready_.clear();
  } else if (index < deciding_.size() && deciding_[index] == slot) {
    deciding_[index] = nullptr;
  }
}

// The slot is not complete any more.
void Coordinator::Reopen(Slot* slot) {
  RemoveComplete(slot);
  slot->complete = false;
  ++open_;
}

void Coordinator::Withdraw(int rank, const Key& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) return;  // decided in the meantime
  Slot* slot = &found->second;
  if (!HasAnnounced(*slot, rank)) return;  // decided in the meantime
  if (slot->complete) Reopen(slot);
  slot->announced[rank] = Slot::Announced::kNot;
  next_[rank].withdrawn.push_back(key);
  --slot->count;
  if (slot->joins) {
    joined_.Withdraw(rank, key.process_set);
    ReopenIncomplete();
  }
  if (slot->count > 0) {
    // It was complete when the job was lost; now it can no longer happen either.
    if (!fatal_.ok()) {
      FailOpen(slot, DoomOf(*slot));
    } else {
      CompleteIfPossible(slot, slot->since);  // where this rank has joined it is not missed
    }
    return;
  }
  --open_;
  ClearTally(slot);
  DropIfEmpty(slot);
}

void Coordinator::RankLeft(int rank, const std::string& reason) {
  if (left_[rank]) return;
  left_[rank] = true;
  ++num_left_;
  if (fatal_.ok()) {
    fatal_ = Status::Aborted("rank " + std::to_string(rank) + " (host " + options_.hosts[rank] +
                             ") has left the job: " +
                             (reason.empty() ? "it called shutdown or its program ended" : reason));
  }
  FailAllOpen();
}

// REQUIRES: some rank announced the slot.
Status Coordinator::DoomOf(const Slot& slot) const {
  int rank = 0;
  while (!HasAnnounced(slot, rank)) ++rank;
  return Status(fatal_.code(),
                Describe(RequestOf(slot, rank)) + " cannot be completed: " + fatal_.message());
}

// Nothing can be agreed any more: whoever waits for others gets the reason.
void Coordinator::FailAllOpen() {
  if (joined_.ForgetAll()) ReopenIncomplete();
  for (auto& [key, slot] : slots_) {
    if (slot.count > 0 && !slot.complete) FailOpen(&slot, DoomOf(slot));
  }
}

// Everyone who announced the slot gets the error; the tally is empty afterwards.
void Coordinator::FailOpen(Slot* slot, const Status& why) {
  for (int r : *slot->members) {
    if (!HasAnnounced(*slot, r)) continue;
    Agreement::Item item;
    item.decision.key = slot->key;
    item.decision.verdict = why;
    next_[r].items.push_back(std::move(item));
  }
  if (slot->complete) {
    RemoveComplete(slot);
  } else {
    --open_;
  }
  if (slot->joins && joined_.Forget(slot->key.process_set)) ReopenIncomplete();
  ClearTally(slot);
}

void Coordinator::ClearTally(Slot* slot) {
  if (observer_ != nullptr && observer_->on()) observer_->TallyOver(slot->key);
  slot->count = 0;
  slot->joins = false;
  slot->complete = false;
  slot->reported = false;
  slot->known_before = 0;
  slot->announced.assign(size(), Slot::Announced::kNot);
  slot->requests.clear();
  slot->requests.shrink_to_fit();
}

void Coordinator::DropIfEmpty(Slot* slot) {
  if (slot->count == 0 && slot->id == kNoId) slots_.erase(Key(slot->key));  // a copy: the slot goes
}

// Ranks that were taken to have joined are waited for again.
void Coordinator::ReopenIncomplete() {
  for (Slot* slot : std::vector<Slot*>(ready_)) {
    if (slot != nullptr && !IsComplete(*slot)) Reopen(slot);
  }
}

std::vector<std::pair<int, Agreement>> Coordinator::Step(double now) {
  CheckStalls(now);
  CallTheRoll(now);
  const bool batching = now < ready_since_ + options_.cycle_time;
  if (num_ready_ > 0 && !HasError() && !batching) {
    ++sequence_;
    deciding_.swap(ready_);
    num_ready_ = 0;
    for (size_t i = 0; i < deciding_.size(); ++i) {
      Slot* slot = std::exchange(deciding_[i], nullptr);
      if (slot == nullptr) continue;
      if (IsComplete(*slot)) {
        Decide(slot, now);
      } else {  // it lacks ranks that were counted as joined until just now
        slot->complete = false;
        ++open_;
      }
    }
    deciding_.clear();
    LockIfRepeating();
  }
  if (num_left_ == size() && !goodbye_sent_ && num_ready_ == 0) {
    goodbye_sent_ = true;
    for (Agreement& a : next_) a.everyone_left = true;
  }

  std::vector<std::pair<int, Agreement>> out;
  for (int r = 0; r < size(); ++r) {
    if (next_[r].empty()) continue;
    next_[r].sequence = sequence_;
    out.emplace_back(r, std::exchange(next_[r], {}));
  }
  return out;
}

}  // namespace tfhvd
