// How large floating-point values are, and whether all are finite: in one pass. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "cc/base/types.h"

namespace tfhvd {

struct Measured {
  bool finite = true;
  // Where all are: the largest of their absolute values, and the sum of their squares.
  double largest = 0.0;
  double squares = 0.0;
};

// Of `count` values; a complex number counts by its parts. Zeros for types that are not of
// floating-point numbers. float32 is read as fast as memory gives it. `data` may be null where
// there are none.
Measured Measure(const void* data, DType dtype, size_t count);

// The same of float32 by each set of instructions that this processor has, for tests. What they
// give differs by the order of additions.
std::vector<Measured> MeasureByAll(const float* data, size_t count);

}  // namespace tfhvd
