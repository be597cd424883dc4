// Parsers of the texts of settings. Pure.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

namespace tfhvd {

// Returns false if the text is no number, or out of range.
inline bool ParseNumber(const std::string& text, double least, double most, double* value) {
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(v >= least) || !(v <= most)) return false;
  *value = v;
  return true;
}

inline std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Returns the index of `text` among `names`, or -1.
inline int Choice(const std::string& text, const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), Lower(text));
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

// Accepts "FIRST-LAST", or "" for any port.
inline bool IsRangeOfPorts(const std::string& text) {
  const size_t dash = text.find('-');
  double first = 0, last = 0;
  return text.empty() ||
         (dash != std::string::npos && text.find_first_not_of("0123456789-") == std::string::npos &&
          ParseNumber(text.substr(0, dash), 1, 65535, &first) &&
          ParseNumber(text.substr(dash + 1), first, 65535, &last));
}

}  // namespace tfhvd
