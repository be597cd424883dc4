// CacheIds: the numbers that the coordinator gives to agreed collectives, and takes back from the
// least recently used ones.
//
// An evicted number can still be announced by ranks that have not seen the eviction; it stays valid
// until all of its process set have, or until its key is decided once more.
//
// Used by the engine's thread only. Slots are the coordinator's, and keep their addresses.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/negotiate/idle_slots.h"
#include "cc/negotiate/slot.h"

namespace tfhvd {

class CacheIds {
 public:
  // `idle`, whose owner outlives this object, has the slots with a number that nobody announces.
  CacheIds(int64_t capacity, IdleSlots* idle) : capacity_(capacity), idle_(idle) {}

  // The slot of that number, or null.
  Slot* Find(CacheId id) const;

  // Gives the slot a number if it has none (or an evicted one), evicting another one where all are
  // in use: returns that, else kNoId. Without a free number the slot stays without one.
  CacheId Assign(Slot* slot, uint64_t sequence);

  // REQUIRES: the slot has a number that is not evicted.
  void Evict(Slot* slot, uint64_t sequence);

  // Forgets the evicted numbers that nobody can announce any more; returns their keys, whose slots
  // may go. `seen`, by rank: the last agreement that it has taken.
  std::vector<Key> Forget(const std::vector<uint64_t>& seen);

 private:
  void ForgetEvicted(Slot* slot);

  const int64_t capacity_;
  IdleSlots* const idle_;                     // Not owned.
  std::unordered_map<CacheId, Slot*> by_id_;  // Not owned.
  int64_t in_use_ = 0;
  CacheId next_ = 1;
  std::vector<Slot*> evicted_;  // Not owned.
};

}  // namespace tfhvd
