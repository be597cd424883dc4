#include "cc/negotiate/cache_ids.h"

#include <algorithm>

namespace tfhvd {

Slot* CacheIds::Find(CacheId id) const {
  const auto slot = by_id_.find(id);
  return slot == by_id_.end() ? nullptr : slot->second;
}

CacheId CacheIds::Assign(Slot* slot, uint64_t sequence) {
  if (slot->id != kNoId && slot->evicted_at == 0) return kNoId;
  // Its key is decided: no rank can announce the old number any more.
  if (slot->evicted_at != 0) ForgetEvicted(slot);
  CacheId evicted = kNoId;
  if (in_use_ >= capacity_) {
    Slot* const oldest = idle_->oldest();
    if (oldest == nullptr || oldest->last_used == sequence) return kNoId;
    evicted = oldest->id;
    Evict(oldest, sequence);
  }
  slot->id = next_++;
  by_id_[slot->id] = slot;
  ++in_use_;
  return evicted;
}

void CacheIds::Evict(Slot* slot, uint64_t sequence) {
  idle_->Remove(slot);
  slot->evicted_at = sequence;
  slot->evicted_index = evicted_.size();
  evicted_.push_back(slot);
  --in_use_;
}

void CacheIds::ForgetEvicted(Slot* slot) {
  by_id_.erase(slot->id);
  evicted_[slot->evicted_index] = evicted_.back();
  evicted_[slot->evicted_index]->evicted_index = slot->evicted_index;
  evicted_.pop_back();
  slot->id = kNoId;
  slot->evicted_at = 0;
}

std::vector<Key> CacheIds::Forget(const std::vector<uint64_t>& seen) {
  std::vector<Key> forgotten;
  for (size_t i = 0; i < evicted_.size();) {
    Slot* const slot = evicted_[i];
    const bool seen_by_all = std::all_of(slot->members->begin(), slot->members->end(), [&](int r) {
      return seen[static_cast<size_t>(r)] >= slot->evicted_at;
    });
    if (slot->count > 0 || !seen_by_all) {
      ++i;
      continue;
    }
    forgotten.push_back(slot->key);
    ForgetEvicted(slot);
  }
  return forgotten;
}

}  // namespace tfhvd
