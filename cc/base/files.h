// Files that are read or written as a whole. No program that this process starts inherits their
// descriptors, also where it is started meanwhile: streams of the standard library would leave them
// open there. Any thread.
#pragma once

#include <string>

namespace tfhvd {

enum class WriteMode { kReplace, kAppend };

// Both return false if that fails; errno says why.
bool ReadFile(const std::string& path, std::string* text);
bool WriteFile(const std::string& path, const std::string& text, WriteMode mode);

}  // namespace tfhvd
