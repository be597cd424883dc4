// Tally: which rank has announced which collective, and which collectives are complete. Part of the
// coordinator, which makes the decisions.
//
// A collective waits for every rank of its process set, except those that have joined
// (joined_ranks.h). Whenever ranks join, or stop to count as joined, the tally completes or reopens
// the slots concerned; so only the tally knows the joined ranks.
//
// Used by the engine's thread only. The tally owns the slots, which keep their addresses until they
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
  // `size`: the number of ranks.
  explicit Tally(int size) : size_(size), joined_(size) {}

  // The observer learns when ranks are ready; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Returns the slot of the key; null if there is none.
  Slot* Find(const Key& key);

  // Returns the slot of the key, and makes it if there is none. `members`: its process set.
  Slot* Open(const Key& key, ProcessSetTable::Members members);

  // Record that `rank` has announced the slot, in a message that it wrote after it had seen the
  // agreement `seen`; AddInFull with a request. REQUIRES: `rank` is a member and has not announced
  // the slot.
  void AddById(Slot* slot, int rank, uint64_t seen, double now);
  void AddInFull(Slot* slot, int rank, Request request, uint64_t seen, double now);

  // Records that rank 0, this rank, has not waited for announcements until `now`.
  void WaitsFrom(double now) { waits_from_ = now; }

  // Removes the rank's announcement. REQUIRES: it has announced the slot.
  void Remove(Slot* slot, int rank);

  // Removes the announcements of a slot, or of all slots, and the joins among them.
  void Clear(Slot* slot);
  void ClearAll();

  // Drops the slot; DropIfEmpty: if no rank has announced it and it has no number.
  void Drop(const Key& key) { slots_.erase(key); }
  void DropIfEmpty(Slot* slot);

  // Waits for all ranks, as if none had joined.
  void WaitForEveryone();

  // Ends the join of a process set that all ranks have joined; returns the rank that joined last.
  int FinishJoin(int32_t process_set);

  // Returns the members that have joined and have not announced the slot: it does not wait for
  // them.
  std::vector<int> Absent(const Slot& slot) const;
  const JoinedRanks& joined() const { return joined_; }

  // Returns the complete slots, in the order of completion: one after the other, then null. The
  // caller must clear each before the next. Slots that become complete meanwhile belong to the next
  // round.
  void BeginRound();
  Slot* NextComplete();

  // Returns the slots with a number that no rank has announced.
  IdleSlots* idle() { return &idle_; }

  // Returns how many slots some ranks have announced and wait for others.
  int open() const { return open_; }
  // Return how many slots are complete, and since when the first of them is.
  int complete() const { return num_complete_; }
  double complete_since() const { return complete_since_; }

  // Visits every slot, by key. REQUIRES: `visit` opens and drops none.
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
  int num_complete_ = 0;         // number of slots in complete_ that are not null
  double complete_since_ = 0.0;
  double waits_from_ = 0.0;   // earlier waits are reported already
  std::vector<Slot*> round_;  // the rest of the present round; null: was taken out
  size_t next_of_round_ = 0;
};

}  // namespace tfhvd
