#include "cc/base/log.h"

#include <cstdio>

namespace tfhvd {

void Log::Write(LogLevel level, const std::string& text) const {
  if (!enabled(level)) return;
  static const char* const kNames[] = {"trace", "debug", "info", "warning", "error", "fatal"};
  const std::string who = rank_ < 0 ? "[tfhvd]" : "[tfhvd rank " + std::to_string(rank_) + "]";
  const std::string line = who + " " + kNames[static_cast<int>(level)] + ": " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace tfhvd
