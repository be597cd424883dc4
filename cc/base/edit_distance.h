// EditDistance: how different two names are, to find the name that a user meant.
#pragma once

#include <cstddef>
#include <string>

namespace tfhvd {

// Returns the least number of characters to insert, delete or change that turn `a` into `b`.
size_t EditDistance(const std::string& a, const std::string& b);

}  // namespace tfhvd
