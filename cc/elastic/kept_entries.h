// KeptEntries: the entries of a process that are under way, in the order of submission. Their
// numbers count up, so that each is found by its place: all of a step's are added and removed, and
// to find one in a tree would take as long as the rest that is done for it.
//
// Any thread, with the owner's lock held.
#pragma once

#include <deque>
#include <utility>

#include "cc/elastic/kept_entry.h"

namespace tfhvd {

class KeptEntries {
 public:
  using Pointer = KeptEntry::Pointer;

  bool empty() const { return count_ == 0; }

  // REQUIRES: the number is greater than all before.
  void Add(EntryId number, Pointer entry) {
    if (places_.empty()) first_ = number;
    places_.resize(number - first_);
    places_.push_back(std::move(entry));
    ++count_;
  }

  // Null where it is not there.
  KeptEntry* Find(EntryId number) const {
    const EntryId place = number - first_;  // of a lower number a very large one
    return place < places_.size() ? places_[place].get() : nullptr;
  }

  // REQUIRES: it is there.
  Pointer Remove(EntryId number) {
    Pointer entry = std::move(places_[number - first_]);
    --count_;
    while (!places_.empty() && places_.front() == nullptr) {
      places_.pop_front();
      ++first_;
    }
    return entry;
  }

  // The number of the first one after `number` of which this is true; 0: there is none.
  template <typename Is>
  EntryId NextAfter(EntryId number, const Is& is) const {
    EntryId next = number < first_ ? first_ : number + 1;
    for (; next - first_ < places_.size(); ++next) {
      const KeptEntry* const entry = Find(next);
      if (entry != nullptr && is(*entry)) return next;
    }
    return 0;
  }

  // Calls this for each, in their order.
  template <typename Do>
  void ForEach(const Do& act) const {
    for (const Pointer& entry : places_) {
      if (entry != nullptr) act(entry.get());
    }
  }

 private:
  std::deque<Pointer> places_;  // null where an entry is removed, or its number was given to none
  EntryId first_ = 1;           // the number of the first place
  size_t count_ = 0;
};

}  // namespace tfhvd
