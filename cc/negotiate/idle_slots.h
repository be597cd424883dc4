// IdleSlots: the slots that have a number and that nobody has announced, the one that was used
// longest ago first. They are linked within themselves, so that whatever is done with one takes as
// long among a hundred thousand as among ten.
//
// Used by the engine's thread only. Slots keep their addresses while they are in here.
#pragma once

#include "cc/negotiate/slot.h"

namespace tfhvd {

class IdleSlots {
 public:
  // Null where there is none.
  Slot* oldest() const { return oldest_; }

  // Puts it behind all others. REQUIRES: it is not in here.
  void Add(Slot* slot) {
    slot->idle = true;
    slot->idle_before = latest_;
    slot->idle_after = nullptr;
    (latest_ == nullptr ? oldest_ : latest_->idle_after) = slot;
    latest_ = slot;
  }

  // Nothing happens where it is not in here.
  void Remove(Slot* slot) {
    if (!slot->idle) return;
    slot->idle = false;
    (slot->idle_before == nullptr ? oldest_ : slot->idle_before->idle_after) = slot->idle_after;
    (slot->idle_after == nullptr ? latest_ : slot->idle_after->idle_before) = slot->idle_before;
  }

 private:
  Slot* oldest_ = nullptr;  // Not owned.
  Slot* latest_ = nullptr;  // likewise
};

}  // namespace tfhvd
