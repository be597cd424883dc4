// Which XLA the calls of calls.h were compiled for.
#pragma once

#include <string>

namespace tfhvd {

// Why the XLA of the TensorFlow in this process does not take calls compiled for another one, and
// what to do; "" where it does. XLA itself says only later, and only that it knows no such call.
std::string WhyXlaDoesNotFit();

}  // namespace tfhvd
