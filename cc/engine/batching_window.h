// BatchingWindow: whether it is worth while to wait a moment for more entries before saying what is
// new. A framework submits the tensors of a step one after the other; each round of negotiation and
// each collective costs about as much for one tensor as for many. How many came together the last
// time tells how many will come now, so that a lone tensor never waits. Used by the engine's thread
// only.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tfhvd {

class BatchingWindow {
 public:
  // `count` entries have been taken.
  void Took(size_t count) { now_ += count; }

  // Nothing is pending any more: the window is over.
  void Ended() {
    if (now_ > 0) last_ = now_;
    now_ = 0;
  }

  // Whether more entries than the `count` that are there now are likely to follow.
  bool MoreLikely(size_t count) const { return count > 0 && now_ + count < last_; }

 private:
  size_t now_ = 0;   // entries of the window under way
  size_t last_ = 0;  // of the one before
};

}  // namespace tfhvd
