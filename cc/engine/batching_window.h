// BatchingWindow: whether it is worth while to wait a moment for more entries before negotiating. A
// framework submits the tensors of a step one after the other, while each round of negotiation and
// each collective costs about as much for one tensor as for many. The number of entries of the last
// window predicts this one's, so that a lone tensor never waits. Used by the engine's thread only.
#pragma once

#include <algorithm>
#include <cstddef>

namespace tfhvd {

class BatchingWindow {
 public:
  // Records that `count` entries were taken.
  void Took(size_t count) { now_ += count; }

  // Ends the window: nothing is pending.
  void Ended() {
    if (now_ > 0) last_ = now_;
    now_ = 0;
  }

  // Returns whether more entries are likely to follow the `count` that are there now.
  bool MoreLikely(size_t count) const { return count > 0 && now_ + count < last_; }

 private:
  size_t now_ = 0;   // entries of the present window
  size_t last_ = 0;  // entries of the last window
};

}  // namespace tfhvd
