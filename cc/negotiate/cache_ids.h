// CacheIds: the numbers of agreed collectives. The coordinator assigns them, and evicts those of
// the least recently used collectives.
//
// Ranks that have not seen an eviction can still announce the number; it stays valid until all
// ranks of its process set have seen the eviction, or until its key is decided again.
//
// Used by the engine's thread only. The coordinator owns the slots; they keep their addresses.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/negotiate/idle_slots.h"
#include "cc/negotiate/slot.h"

namespace tfhvd {

class CacheIds {
 public:
  // `idle`, whose owner outlives this object, holds the slots with a number that no rank has
  // announced.
  CacheIds(int64_t capacity, IdleSlots* idle) : capacity_(capacity), idle_(idle) {}

  // Returns the slot of that number, or null.
  Slot* Find(CacheId id) const;

  // Gives the slot a number if it has none (or an evicted one). If all numbers are in use, evicts
  // another slot's number and returns it, otherwise kNoId. Without a free number, the slot gets
  // none.
  CacheId Assign(Slot* slot, uint64_t sequence);

  // REQUIRES: the slot has a number that is not evicted.
  void Evict(Slot* slot, uint64_t sequence);

  // Removes the evicted numbers that no rank can announce any more; returns their keys, whose slots
  // may be dropped. `seen`, by rank: the last agreement that it has taken.
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
