// Adasum: a reduction that adds orthogonal gradients and averages parallel ones, so that a sum over
// many ranks does not overshoot. For two vectors
//
//   adasum(a, b) = a (1 - a.b / (2 |a|^2)) + b (1 - a.b / (2 |b|^2))
//
// and for more in a tree: rank r with rank r + 1, pairs with pairs at distance 2, then 4, and so
// on. Any number of ranks: what has no partner goes up as it is. (The tree is even, each rank with
// the same weight, only where their number is a power of two.)
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/comm/communicator.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

// What Adasum works in, so that a rank knows before any data move whether it has the memory.
struct AdasumMemory {
  // kUnavailable where there is none. A vector of `count` elements, for rank `rank` of `size`.
  Status Reserve(int64_t count, DType dtype, int rank, int size);

  std::vector<char> brought;                 // every rank's values, of this rank's part
  std::vector<std::vector<double>> vectors;  // the same
};

// out = postscale * adasum over all ranks of (prescale * in), equal to the bit on every rank; in
// host memory, `in` may be `out`. Each rank works on its part of the elements; dot products are
// those of whole vectors, in double precision, as is everything but the result.
// REQUIRES: a floating-point type; `memory` was reserved for this call. `scales.op` is ignored.
Status Adasum(Communicator* communicator, const void* in, void* out, int64_t count, DType dtype,
              const Reduction& scales, AdasumMemory* memory);

}  // namespace tfhvd
