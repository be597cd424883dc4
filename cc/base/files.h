// Reads and writes files as a whole. A program that this process starts meanwhile does not inherit
// their descriptors, as it would with streams of the standard library. Any thread.
#pragma once

#include <string>

namespace tfhvd {

enum class WriteMode { kReplace, kAppend };

// Both return false on failure; errno says why.
bool ReadFile(const std::string& path, std::string* text);
bool WriteFile(const std::string& path, const std::string& text, WriteMode mode);

}  // namespace tfhvd
