// Elementwise arithmetic of the collectives on host memory. Pure functions.
//
// The result of a reduction is fixed to the bit: rank 0's value first, then rank 1's, and so on;
// 16-bit floats are widened, combined in float32 and rounded once at the end. Every flat backend
// uses ReduceRanks on whole ranks' data, so all backends agree and all ranks hold equal bits.
//
// A reduction in levels (the ranks of a host first, then the hosts) keeps intermediate values in
// another type, so that nothing is rounded, wrapped, divided or scaled before the end:
//
//   Widen each rank's values, ReduceRanks them with Between() at each level, Complete the result.
//
// (HierarchicalCommunicator makes an exception of 16-bit floats.)
#pragma once

#include <cstdint>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {

// Checks whether the type can be reduced in this way: bool only by Min (and) and Max (or),
// unscaled; complex numbers only by Sum and Average.
Status CheckReduction(DType dtype, const Reduction& reduction);

// All functions below REQUIRE a type that is not complex: callers with complex numbers pass the
// parts (PartType), twice as many.

// out[i] = reduction over r of in[r][i], for 0 <= i < count and 0 <= r < ranks. `out` may be one of
// in[], unless `store` is kMemory. REQUIRES: CheckReduction is ok; ranks >= 1.
void ReduceRanks(void* out, const void* const* in, int ranks, int64_t count, DType dtype,
                 const Reduction& reduction, StoreIn store = StoreIn::kCaches);

// Fills `count` elements with the neutral value of an unscaled reduction: zeros for Sum and
// Average, ones for Product, the largest value (infinity) for Min and the lowest one for Max.
void FillNeutral(void* out, int64_t count, DType dtype, ReduceOp op);

// Returns the type of intermediate values between the levels of the reduction: `dtype` itself, or a
// wider one if `dtype` could not hold them (16-bit floats; small integers that are averaged or
// scaled).
DType TypeBetween(DType dtype, const Reduction& reduction);

// Returns how to combine values of that type at each level.
Reduction Between(const Reduction& reduction);

// out[i] = in[i], prescaled, of type TypeBetween. `out` does not overlap `in`, unless it is `in`
// and the types are equal.
void Widen(void* out, const void* in, int64_t count, DType dtype, const Reduction& reduction);

// out[i] = in[i], divided and postscaled as the reduction says. in[i] is of type TypeBetween,
// combined from `ranks` ranks; out[i] of type `dtype`. `out` is `in` or does not overlap it.
void Complete(void* out, const void* in, int ranks, int64_t count, DType dtype,
              const Reduction& reduction);

}  // namespace tfhvd
