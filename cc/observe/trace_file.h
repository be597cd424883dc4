// TraceFile: a file in Chrome's trace event format (a JSON array, for `tfhvd timeline` and
// ui.perfetto.dev), written by a separate thread.
//
// Push takes an event and returns; it does not wait for a file system. When `most` events wait,
// further ones are refused. The file is a complete JSON text at any time, so that a killed process
// leaves one, without the last moments.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"

namespace tfhvd {

struct TraceEvent {
  char phase = 'B';         // B: begin, E: end, X: without duration, i: of all rows, M: about a row
  int64_t nanoseconds = 0;  // on the steady clock
  int64_t row = 0;          // "pid"
  int32_t lane = 0;         // "tid", within the row
  const char* name = nullptr;  // outlives the file; null for an end
  std::string args;            // a JSON object, or ""
};

class TraceFile {
 public:
  static constexpr size_t kMost = 1 << 18;

  // Creates the file, or empties it, and writes `first`.
  static Status Open(const std::string& path, TraceEvent first, std::unique_ptr<TraceFile>* out,
                     size_t most = kMost);

  // Closes the file if Close was not called.
  ~TraceFile();

  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Takes the event; returns false if it is refused. An event that ends an accepted one `must` be
  // taken.
  bool Push(TraceEvent event, bool must) TFHVD_EXCLUDES(mutex_);

  // Writes the waiting events and ends the thread; returns an error if an event could not be
  // written.
  Status Close() TFHVD_EXCLUDES(mutex_);

 private:
  TraceFile(int descriptor, std::string path, size_t most)
      : descriptor_(descriptor), path_(std::move(path)), most_(most) {}

  void Run() TFHVD_EXCLUDES(mutex_);
  Status Append(const std::vector<TraceEvent>& events);
  Status AppendText(const std::string& text);
  Status WriteAt(int64_t offset, const std::string& text) const;

  const int descriptor_;
  const std::string path_;
  const size_t most_;

  // Used by the writer's thread; by Open before that thread begins.
  int64_t end_ = 0;  // the offset of the closing bracket

  Mutex mutex_;
  CondVar come_;
  std::vector<TraceEvent> waiting_ TFHVD_GUARDED_BY(mutex_);
  bool closing_ TFHVD_GUARDED_BY(mutex_) = false;
  Status status_ TFHVD_GUARDED_BY(mutex_);
  std::thread writer_;
};

// Returns a JSON string with its quotes.
std::string JsonString(const std::string& text);

}  // namespace tfhvd
