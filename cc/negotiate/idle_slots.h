// IdleSlots: the slots with a number that no rank has announced, ordered by their last use, the
// oldest first. They form a linked list, so that each operation takes the same time with ten slots
// as with a hundred thousand.
//
// Used by the engine's thread only. Slots keep their addresses while they are in the list.
#pragma once

#include "cc/negotiate/slot.h"

namespace tfhvd {

class IdleSlots {
 public:
  // Returns null if there is none.
  Slot* oldest() const { return oldest_; }

  // Adds the slot as the latest. REQUIRES: it is not in the list.
  void Add(Slot* slot) {
    slot->idle = true;
    slot->idle_before = latest_;
    slot->idle_after = nullptr;
    (latest_ == nullptr ? oldest_ : latest_->idle_after) = slot;
    latest_ = slot;
  }

  // Does nothing if the slot is not in the list.
  void Remove(Slot* slot) {
    if (!slot->idle) return;
    slot->idle = false;
    (slot->idle_before == nullptr ? oldest_ : slot->idle_before->idle_after) = slot->idle_after;
    (slot->idle_after == nullptr ? latest_ : slot->idle_after->idle_before) = slot->idle_before;
  }

 private:
  Slot* oldest_ = nullptr;  // Not owned.
  Slot* latest_ = nullptr;  // Not owned.
};

}  // namespace tfhvd
