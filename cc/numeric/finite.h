// Which floating-point values are finite: neither NaN nor infinite. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cc/base/types.h"

namespace tfhvd {

struct NotFinite {
  int64_t nans = 0;
  int64_t infinities = 0;
};

// Returns whether all of `count` values are finite; true for types that have no others. As fast as
// memory can be read. `data` may be null if `count` is 0.
bool AllFinite(const void* data, DType dtype, size_t count);

// Counts the values that are not finite; a complex number counts by its parts.
NotFinite CountNotFinite(const void* data, DType dtype, size_t count);

}  // namespace tfhvd
