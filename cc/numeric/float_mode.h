// IeeeFloats: floating-point arithmetic as IEEE 754 has it, whatever the calling thread has set.
//
// TensorFlow's threads flush denormal numbers to zero, and the engine's own thread does not. Either
// may run a reduction, so each reduction sets the mode itself: ranks would differ otherwise.
#pragma once

#include "cc/numeric/compat.h"

namespace tfhvd {

// Sets the mode of this thread (denormals kept, rounding to nearest), and restores the one before.
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
