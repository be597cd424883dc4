// EditDistance: how unlike two names are, to find the name that a user meant.
#pragma once

#include <cstddef>
#include <string>

namespace tfhvd {

// How many characters to insert, take out or change until one is the other.
size_t EditDistance(const std::string& a, const std::string& b);

}  // namespace tfhvd
