// Version: the XLA that the calls of calls.h were compiled for.
#pragma once

#include <string>

namespace tfhvd {

// Returns why the XLA in this process does not accept calls that were compiled for another one,
// with advice; "" if it does. XLA reports this only later, and only as an unknown call.
std::string WhyXlaDoesNotFit();

}  // namespace tfhvd
