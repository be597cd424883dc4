#include "cc/base/log.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace tfhvd {
namespace {

// Returns the time of day, as in logs of other machines: "2026-01-31T12:00:00.123Z".
std::string TimeText() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char seconds[32];
  char text[48];
  std::strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text, sizeof text, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
  return text;
}

std::string ThisHost() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Log::Log(LogLevel least, int rank, const std::string& host)
    : least_(least), rank_(rank), host_(host.empty() ? ThisHost() : host) {}

void Log::Write(LogLevel level, const std::string& text) const {
  if (!enabled(level)) return;
  static const char* const kNames[] = {"trace", "debug", "info", "warning", "error", "fatal"};
  std::string who = "tfhvd";
  if (rank_ >= 0) who += " rank " + std::to_string(rank_);
  if (!host_.empty()) who += " on " + host_;
  const std::string line =
      "[" + who + ", " + TimeText() + "] " + kNames[static_cast<int>(level)] + ": " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace tfhvd
