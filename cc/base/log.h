// Log: lines on stderr, "[tfhvd rank 1 on a, 2026-01-31T12:00:00.123Z] warning: text". A value that
// its owner hands down; there is no global logger. Thread-safe: a line is written with one call.
#pragma once

#include <string>

namespace tfhvd {

enum class LogLevel { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kFatal = 5 };

class Log {
 public:
  Log() = default;
  // `host`: the job's name for this host; "": not known yet, the log uses the system's name.
  Log(LogLevel least, int rank, const std::string& host = "");

  bool enabled(LogLevel level) const { return level >= least_; }
  void Write(LogLevel level, const std::string& text) const;

  void Debug(const std::string& text) const { Write(LogLevel::kDebug, text); }
  void Info(const std::string& text) const { Write(LogLevel::kInfo, text); }
  void Warning(const std::string& text) const { Write(LogLevel::kWarning, text); }
  void Error(const std::string& text) const { Write(LogLevel::kError, text); }

 private:
  LogLevel least_ = LogLevel::kWarning;
  int rank_ = -1;  // -1: not known yet
  std::string host_;
};

}  // namespace tfhvd
