// IeeeFloats: floating-point arithmetic according to IEEE 754, whatever mode the calling thread
// has.
//
// TensorFlow's threads flush denormal numbers to zero, and the engine's thread does not. Either may
// run a reduction, so each reduction sets the mode itself: otherwise ranks would differ.
#pragma once

#include "cc/numeric/compat.h"

namespace tfhvd {

// Sets the mode of this thread (denormals kept, rounding to nearest); the destructor restores the
// old one.
class IeeeFloats {
 public:
  IeeeFloats() : before_(compat::ReadFloatMode()) {
    if (!compat::IsIeee(before_)) compat::WriteFloatMode(compat::kIeee);
  }
  ~IeeeFloats() {
    if (!compat::IsIeee(before_)) compat::WriteFloatMode(before_);
  }
  IeeeFloats(const IeeeFloats&) = delete;
  IeeeFloats& operator=(const IeeeFloats&) = delete;

 private:
  const compat::FloatMode before_;
};

}  // namespace tfhvd
