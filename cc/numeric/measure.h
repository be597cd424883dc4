// Measure: how large floating-point values are, and whether all are finite, in one pass. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "cc/base/types.h"

namespace tfhvd {

struct Measured {
  bool finite = true;
  // If all are finite: the largest of their absolute values, and the sum of their squares.
  double largest = 0.0;
  double squares = 0.0;
};

// Measures `count` values; a complex number counts by its parts. Returns zeros for types without
// floating-point numbers. Reads float32 as fast as memory allows. `data` may be null if `count` is
// 0.
Measured Measure(const void* data, DType dtype, size_t count);

// Measures float32 with each set of instructions that this processor has, for tests. The results
// differ by the order of additions.
std::vector<Measured> MeasureByAll(const float* data, size_t count);

}  // namespace tfhvd
