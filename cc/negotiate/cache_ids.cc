#include "cc/negotiate/cache_ids.h"

#include <algorithm>

namespace tfhvd {

Slot* CacheIds::Find(CacheId id) const {
  const auto slot = by_id_.find(id);
  return slot == by_id_.end() ? nullptr : slot->second;
}

CacheId CacheIds::Assign(Slot* slot, uint64_t sequence) {
  if (slot->id != kNoId && slot->evicted_at == 0) return kNoId;
  if (slot->evicted_at != 0) {  // its key is decided: nobody can announce the old number any more
    by_id_.erase(slot->id);
    evicted_.erase(std::find(evicted_.begin(), evicted_.end(), slot->id));
    slot->id = kNoId;
    slot->evicted_at = 0;
  }
  CacheId evicted = kNoId;
  if (in_use_ >= capacity_) {
    Slot* oldest = LeastRecentlyUsed(sequence);
    if (oldest == nullptr) return kNoId;
    evicted = oldest->id;
    Evict(oldest, sequence);
  }
  slot->id = next_++;
  by_id_[slot->id] = slot;
  ++in_use_;
  return evicted;
}

void CacheIds::Evict(Slot* slot, uint64_t sequence) {
  slot->evicted_at = sequence;
  evicted_.push_back(slot->id);
  --in_use_;
}

Slot* CacheIds::LeastRecentlyUsed(uint64_t sequence) const {
  Slot* oldest = nullptr;
  for (const auto& [id, slot] : by_id_) {
    if (slot->count > 0 || slot->evicted_at != 0 || slot->last_used == sequence) continue;
    if (oldest == nullptr || slot->last_used < oldest->last_used) oldest = slot;
  }
  return oldest;
}

std::vector<Key> CacheIds::Forget(const std::vector<uint64_t>& seen) {
  std::vector<Key> forgotten;
  for (size_t i = 0; i < evicted_.size();) {
    const Slot* slot = by_id_.at(evicted_[i]);
    const bool seen_by_all = std::all_of(slot->members->begin(), slot->members->end(), [&](int r) {
      return seen[static_cast<size_t>(r)] >= slot->evicted_at;
    });
    if (slot->count > 0 || !seen_by_all) {
      ++i;
      continue;
    }
    forgotten.push_back(slot->key);
    by_id_.erase(slot->id);
    evicted_[i] = evicted_.back();
    evicted_.pop_back();
  }
  return forgotten;
}

}  // namespace tfhvd
