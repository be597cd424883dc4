// Tally: which rank has announced which collective, and which collectives wait for nobody any more.
// Part of the coordinator, which decides what those mean.
//
// A collective waits for every rank of its process set, except those that have joined
// (joined_ranks.h). Whenever who has joined changes, the tally completes or reopens what that
// concerns; so it is the only one to know.
//
// Used by the engine's thread only. Slots are the tally's own and keep their addresses until they
// are dropped. Times are in seconds on one monotonic clock.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/flow/observer.h"
#include "cc/flow/process_set_table.h"
#include "cc/negotiate/idle_slots.h"
#include "cc/negotiate/joined_ranks.h"
#include "cc/negotiate/slot.h"

namespace tfhvd {

class Tally {
 public:
  // Of a job of so many ranks.
  explicit Tally(int size) : size_(size), joined_(size) {}

  // Who is told when ranks are ready; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // The slot of the key; null where there is none.
  Slot* Find(const Key& key);

  // The slot of the key, made where there is none. `members`: its process set.
  Slot* Open(const Key& key, ProcessSetTable::Members members);

  // Notes that `rank` has announced the slot, in a message that it wrote when it had seen the
  // agreement `seen`; one `InFull` has a request. REQUIRES: a member, which has not announced it.
  void AddById(Slot* slot, int rank, uint64_t seen, double now);
  void AddInFull(Slot* slot, int rank, Request request, uint64_t seen, double now);

  // Until then this rank, 0, did other things than to wait for announcements.
  void WaitsFrom(double now) { waits_from_ = now; }

  // The rank takes its announcement back. REQUIRES: it has announced the slot.
  void Remove(Slot* slot, int rank);

  // Nobody has announced the slot any more, or any slot; where they were to join, nobody has.
  void Clear(Slot* slot);
  void ClearAll();

  // Forgets the slot, or the slot if nobody has announced it and it has no number.
  void Drop(const Key& key) { slots_.erase(key); }
  void DropIfEmpty(Slot* slot);

  // Nobody counts as joined any more.
  void WaitForEveryone();

  // All ranks have joined the process set: none has any more. Returns which came last.
  int FinishJoin(int32_t process_set);

  // Members that have joined, and have not announced the slot: it does not wait for them.
  std::vector<int> Absent(const Slot& slot) const;
  const JoinedRanks& joined() const { return joined_; }

  // Hands out what is complete now, in the order of completion: one after the other, until null.
  // The caller clears each before the next. What becomes complete meanwhile is for the next round.
  void BeginRound();
  Slot* NextComplete();

  // Those that have a number and that nobody has announced.
  IdleSlots* idle() { return &idle_; }

  // How many slots are announced by some ranks and wait for others.
  int open() const { return open_; }
  // How many are complete, and since when the first of them is.
  int complete() const { return num_complete_; }
  double complete_since() const { return complete_since_; }

  // Every slot, by key. REQUIRES: none is opened or dropped meanwhile.
  template <typename Visitor>
  void ForEach(Visitor visit) {
    for (auto& [key, slot] : slots_) visit(&slot);
  }

 private:
  void Add(Slot* slot, int rank, Slot::Announced how, uint64_t seen, double now);
  bool IsComplete(const Slot& slot) const;
  void CompleteIfPossible(Slot* slot, int last, double now);
  int LastOf(const Slot& slot, int rank) const;
  void Reopen(Slot* slot);
  void ReopenIncomplete();
  void ObserveWait(const Slot& slot, int rank, double now);
  void TakeFromLists(Slot* slot);

  const int size_;
  Observer* observer_ = nullptr;  // Not owned.
  std::unordered_map<Key, Slot, KeyHash> slots_;
  IdleSlots idle_;
  JoinedRanks joined_;
  int open_ = 0;                 // slots with an incomplete, nonempty tally
  std::vector<Slot*> complete_;  // in order of completion; null: was taken out
  int num_complete_ = 0;         // those of complete_ that are not null
  double complete_since_ = 0.0;
  double waits_from_ = 0.0;   // what was waited before is told
  std::vector<Slot*> round_;  // what the current round is still to hand out; null: was taken out
  size_t next_of_round_ = 0;
};

}  // namespace tfhvd
