// Reduction: what is done with the values of all ranks. Plain data.
#pragma once

#include "cc/base/types.h"

namespace tfhvd {

// What an allreduce computes: post * (pre * x_0 op pre * x_1 op ...), divided by the number of
// ranks for Average. Factors other than 1 act on integers through double, truncated.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;

  bool operator==(const Reduction& o) const {
    return op == o.op && prescale == o.prescale && postscale == o.postscale;
  }
};

// Where values are written: through the caches, or past them to memory, which is faster for what is
// too large to be read from them later, or is read by a core that has none of them.
enum class StoreIn { kCaches, kMemory };

}  // namespace tfhvd
