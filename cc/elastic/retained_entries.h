// RetainedEntries: the unfinished entries of a process, in the order of submission. Their numbers
// increase, so the number of an entry gives its index. A tree would need as much time per lookup as
// everything else that is done for an entry.
//
// Any thread, with the owner's lock held.
#pragma once

#include <deque>
#include <utility>

#include "cc/elastic/retained_entry.h"

namespace tfhvd {

class RetainedEntries {
 public:
  using Pointer = RetainedEntry::Pointer;

  bool empty() const { return count_ == 0; }

  // REQUIRES: the number is greater than all before.
  void Add(EntryId number, Pointer entry) {
    if (places_.empty()) first_ = number;
    places_.resize(number - first_);
    places_.push_back(std::move(entry));
    ++count_;
  }

  // Returns null if the entry is not there.
  RetainedEntry* Find(EntryId number) const {
    const EntryId place = number - first_;  // very large for a number below first_
    return place < places_.size() ? places_[place].get() : nullptr;
  }

  // REQUIRES: the entry is there.
  Pointer Remove(EntryId number) {
    Pointer entry = std::move(places_[number - first_]);
    --count_;
    while (!places_.empty() && places_.front() == nullptr) {
      places_.pop_front();
      ++first_;
    }
    return entry;
  }

  // Returns the number of the first entry after `number` that satisfies `is`; 0 if there is none.
  template <typename Is>
  EntryId NextAfter(EntryId number, const Is& is) const {
    EntryId next = number < first_ ? first_ : number + 1;
    for (; next - first_ < places_.size(); ++next) {
      const RetainedEntry* const entry = Find(next);
      if (entry != nullptr && is(*entry)) return next;
    }
    return 0;
  }

  // Calls `act` for each entry, in order.
  template <typename Do>
  void ForEach(const Do& act) const {
    for (const Pointer& entry : places_) {
      if (entry != nullptr) act(entry.get());
    }
  }

 private:
  std::deque<Pointer> places_;  // null if the entry was removed or the number was never used
  EntryId first_ = 1;           // the number of the first place
  size_t count_ = 0;
};

}  // namespace tfhvd
