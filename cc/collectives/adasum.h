// Adasum: a reduction that adds orthogonal gradients and averages parallel ones, so that a sum over
// many ranks does not overshoot. For two vectors
//
//   adasum(a, b) = a (1 - a.b / (2 |a|^2)) + b (1 - a.b / (2 |b|^2))
//
// and for more vectors in a tree: rank r with rank r + 1, pairs with pairs at distance 2, then 4,
// and so on. Any number of ranks: a vector without a partner passes to the next level unchanged.
// (The tree is balanced, with equal weights for all ranks, only if the number of ranks is a power
// of two.)
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/comm/communicator.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

// The memory that Adasum needs, so that a rank knows before any data move whether it has it.
struct AdasumMemory {
  // For a vector of `count` elements, on rank `rank` of `size`. Returns kUnavailable if there is no
  // memory.
  Status Reserve(int64_t count, DType dtype, int rank, int size);

  std::vector<char> brought;                 // this rank's part of the values of every rank
  std::vector<std::vector<double>> vectors;  // the same as double
};

// out = postscale * adasum over all ranks of (prescale * in), equal to the bit on every rank; in
// host memory. `in` may be `out`. Each rank works on its part of the elements; dot products are
// those of whole vectors, in double precision, as is everything except the result. REQUIRES: a
// floating-point type; `memory` was reserved for this call. `scales.op` is ignored.
Status Adasum(Communicator* communicator, const void* in, void* out, int64_t count, DType dtype,
              const Reduction& scales, AdasumMemory* memory);

}  // namespace tfhvd
