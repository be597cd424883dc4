#include "cc/negotiate/tally.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tfhvd {

Slot* Tally::Find(const Key& key) {
  const auto found = slots_.find(key);
  return found == slots_.end() ? nullptr : &found->second;
}

Slot* Tally::Open(const Key& key, ProcessSetTable::Members members) {
  Slot& slot = slots_[key];
  if (slot.members != nullptr) return &slot;
  slot.key = key;
  slot.members = std::move(members);
  slot.announced.assign(static_cast<size_t>(size_), Slot::Announced::kNot);
  return &slot;
}

void Tally::AddById(Slot* slot, int rank, uint64_t seen, double now) {
  Add(slot, rank, Slot::Announced::kById, seen, now);
  CompleteIfPossible(slot, LastOf(*slot, rank), now);
  ObserveWait(*slot, rank, now);
}

void Tally::AddInFull(Slot* slot, int rank, Request request, uint64_t seen, double now) {
  const bool joins = request.kind == Collective::kJoin;
  const bool stops = request.stops;
  KeepRequest(slot, rank, std::move(request));
  Add(slot, rank, Slot::Announced::kInFull, seen, now);
  if (joins) {
    slot->joins = true;
    joined_.Join(rank, slot->key.process_set, stops);
    for (auto& [key, other] : slots_) {
      if (!other.joins) CompleteIfPossible(&other, rank, now);  // the end of the join comes last
    }
  }
  CompleteIfPossible(slot, LastOf(*slot, rank), now);
  ObserveWait(*slot, rank, now);
}

// Returns `rank`, which has just announced the slot; -1 if another rank announced it at the same
// time, or no other rank has announced it.
int Tally::LastOf(const Slot& slot, int rank) const {
  return slot.count > 1 && !slot.tied ? rank : -1;
}

// Reports the wait of rank 0 that ends with the announcement of `rank`.
void Tally::ObserveWait(const Slot& slot, int rank, double now) {
  if (observer_ == nullptr || !observer_->on()) return;
  if (!slot.complete || rank == 0 || !HasAnnounced(slot, 0)) return;
  const double from = std::max(slot.ready_here, waits_from_);
  if (now <= from) return;
  observer_->Waited(slot.tied ? kSeveralRanks : rank, now - from);
  waits_from_ = now;
}

void Tally::Add(Slot* slot, int rank, Slot::Announced how, uint64_t seen, double now) {
  slot->announced[static_cast<size_t>(rank)] = how;
  slot->tied = slot->count > 0 && slot->last == now;
  slot->last = now;
  if (rank == 0) slot->ready_here = now;
  if (observer_ != nullptr && observer_->wants_ranks()) {
    const bool in_full = how == Slot::Announced::kInFull;
    const Request& request = in_full ? RequestInFull(*slot, rank) : slot->request;
    observer_->RankReady(slot->key, request.kind, rank, false);
  }
  slot->known_before = std::max(slot->known_before, seen);
  if (slot->count++ > 0) return;
  idle_.Remove(slot);
  slot->since = now;
  ++open_;
}

void Tally::Remove(Slot* slot, int rank) {
  if (slot->complete) Reopen(slot);
  if (slot->count == 1) return Clear(slot);
  slot->announced[static_cast<size_t>(rank)] = Slot::Announced::kNot;
  --slot->count;
  if (slot->joins) {
    joined_.Withdraw(rank, slot->key.process_set);
    ReopenIncomplete();
  }
  CompleteIfPossible(slot, -1, slot->since);  // if this rank has joined, it is not missing
}

void Tally::Clear(Slot* slot) {
  if (slot->complete) {
    TakeFromLists(slot);
  } else if (slot->count > 0) {
    --open_;
  }
  if (observer_ != nullptr && observer_->wants_ranks()) observer_->TallyOver(slot->key);
  const bool joined = slot->joins;
  const bool numbered = slot->id != kNoId && slot->evicted_at == 0;
  if (numbered && slot->count > 0) idle_.Add(slot);
  slot->count = 0;
  slot->joins = false;
  slot->complete = false;
  slot->reported = false;
  slot->known_before = 0;
  slot->announced.assign(static_cast<size_t>(size_), Slot::Announced::kNot);
  slot->requests = {};
  slot->request_of = {};
  if (joined && joined_.Forget(slot->key.process_set)) ReopenIncomplete();
}

void Tally::ClearAll() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    if (slot->second.count > 0) Clear(&slot->second);
    slot = slot->second.id == kNoId ? slots_.erase(slot) : std::next(slot);
  }
}

void Tally::DropIfEmpty(Slot* slot) {
  if (slot->count == 0 && slot->id == kNoId) Drop(Key(slot->key));  // a copy, because the slot goes
}

void Tally::WaitForEveryone() {
  if (joined_.ForgetAll()) ReopenIncomplete();
}

int Tally::FinishJoin(int32_t process_set) {
  const int last = joined_.Finish(process_set);
  ReopenIncomplete();
  return last;
}

std::vector<int> Tally::Absent(const Slot& slot) const {
  std::vector<int> absent;
  if (joined_.empty() || slot.joins) return absent;
  const std::vector<bool> joined = joined_.Of(slot.key.process_set);
  for (int r : *slot.members) {
    if (joined[static_cast<size_t>(r)] && !HasAnnounced(slot, r)) absent.push_back(r);
  }
  return absent;
}

void Tally::BeginRound() {
  round_.swap(complete_);
  complete_.clear();
  num_complete_ = 0;
  next_of_round_ = 0;
}

Slot* Tally::NextComplete() {
  while (next_of_round_ < round_.size()) {
    Slot* const slot = std::exchange(round_[next_of_round_++], nullptr);
    if (slot == nullptr) continue;
    if (IsComplete(*slot)) return slot;
    slot->complete = false;  // it lacks ranks that counted as joined until now
    ++open_;
  }
  round_.clear();
  return nullptr;
}

bool Tally::IsComplete(const Slot& slot) const {
  if (slot.count == 0) return false;
  const size_t needed = slot.members->size();
  if (static_cast<size_t>(slot.count) == needed) return true;
  return !joined_.empty() && static_cast<size_t>(slot.count) + Absent(slot).size() == needed;
}

// `last`: the rank whose announcement may complete the slot, or -1.
void Tally::CompleteIfPossible(Slot* slot, int last, double now) {
  if (slot->complete || !IsComplete(*slot)) return;
  slot->complete = true;
  slot->waited_for = last;
  --open_;
  if (num_complete_++ == 0) complete_since_ = now;
  slot->index = complete_.size();
  complete_.push_back(slot);
}

// Removes a complete slot from its list; the others keep their indices.
void Tally::TakeFromLists(Slot* slot) {
  const size_t index = slot->index;
  if (index < complete_.size() && complete_[index] == slot) {
    complete_[index] = nullptr;
    if (--num_complete_ == 0) complete_.clear();
  } else if (index < round_.size() && round_[index] == slot) {
    round_[index] = nullptr;
  }
}

// Records that the slot is no longer complete.
void Tally::Reopen(Slot* slot) {
  TakeFromLists(slot);
  slot->complete = false;
  ++open_;
}

// Waits again for ranks that counted as joined.
void Tally::ReopenIncomplete() {
  for (Slot* slot : std::vector<Slot*>(complete_)) {
    if (slot != nullptr && !IsComplete(*slot)) Reopen(slot);
  }
}

}  // namespace tfhvd
