// Reduction: how the values of all ranks are combined. Plain data.
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

// Where values are written: through the caches, or past them to memory. The latter is faster for
// values that are too many to be read from the caches later, or that a core with other caches
// reads.
enum class StoreIn { kCaches, kMemory };

}  // namespace tfhvd
