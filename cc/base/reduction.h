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

// Where the result is written: through the caches, or past them to memory, which is faster for one
// that is too large to be read from them later.
enum class ResultIn { kCaches, kMemory };

}  // namespace tfhvd
