// EntryQueue: the waiting entries of one key in this process, in the order of submission. The first
// entry is the announced one. Any other entry can be removed at the cost of a binary search.
//
// Used by the engine's thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "cc/flow/entry.h"

namespace tfhvd {

class EntryQueue {
 public:
  bool empty() const { return waiting_ == 0; }
  size_t size() const { return waiting_; }

  // REQUIRES, for all three: not empty.
  Entry& front() { return items_[first_].entry; }
  const Entry& front() const { return items_[first_].entry; }
  const Entry& back() const { return items_.back().entry; }

  // REQUIRES: its id is greater than those of all earlier entries.
  void push_back(Entry&& entry) {
    items_.push_back({std::move(entry)});
    ++waiting_;
  }

  // REQUIRES: not empty.
  void pop_front() {
    MarkTaken(&items_[first_]);
    Trim();
  }

  // Moves the entry `id` out. REQUIRES: it is here, and is not the first one.
  Entry Take(EntryId id) {
    const auto item =
        std::lower_bound(items_.begin() + static_cast<std::ptrdiff_t>(first_), items_.end(), id,
                         [](const Item& t, EntryId wanted) { return t.entry.id < wanted; });
    Entry entry = std::move(item->entry);
    item->entry.id = id;  // searches for other entries read it
    MarkTaken(&*item);
    Trim();
    return entry;
  }

  // Calls `f` with the id of each entry.
  template <typename F>
  void ForEachId(F f) const {
    for (const Item& item : items_) {
      if (item.waits) f(item.entry.id);
    }
  }

  // Moves all entries to the end of `entries`.
  void TakeAll(std::vector<Entry>* entries) {
    for (Item& item : items_) {
      if (item.waits) entries->push_back(std::move(item.entry));
    }
    items_.clear();
    first_ = waiting_ = 0;
  }

 private:
  struct Item {
    Entry entry;
    bool waits = true;  // false: only its id is left
  };

  void MarkTaken(Item* item) {
    item->waits = false;
    --waiting_;
  }

  // Drops the remains of removed entries: at once before the first entry and behind the last one;
  // between them as soon as they are more than half of the list.
  void Trim() {
    if (waiting_ == 0) {  // the list keeps its memory from step to step
      items_.clear();
      first_ = 0;
      return;
    }
    while (!items_.back().waits) items_.pop_back();
    while (!items_[first_].waits) ++first_;
    if (items_.size() <= 2 * waiting_) return;
    items_.erase(
        std::remove_if(items_.begin(), items_.end(), [](const Item& item) { return !item.waits; }),
        items_.end());
    first_ = 0;
  }

  std::vector<Item> items_;  // by id, ascending
  size_t first_ = 0;         // the index of the first waiting entry
  size_t waiting_ = 0;       // number of waiting entries
};

}  // namespace tfhvd
