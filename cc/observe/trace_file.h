// TraceFile: a file in Chrome's trace event format (a JSON array, for `tfhvd timeline` and
// ui.perfetto.dev), written by a thread of its own.
//
// Push takes an event and returns; it waits for no file system. Events that come faster than they
// can be written are refused once `most` wait. What was written is a whole JSON text at any time,
// so that a process which is killed leaves one, of all but the last moments.
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
  char phase = 'B';            // B: begin, E: end, X: of no length, i: of all rows, M: about a row
  int64_t nanoseconds = 0;     // on the steady clock
  int64_t row = 0;             // "pid"
  int32_t lane = 0;            // "tid", within the row
  const char* name = nullptr;  // outlives the file; null for an end
  std::string args;            // a JSON object, or ""
};

class TraceFile {
 public:
  static constexpr size_t kMost = 1 << 18;

  // Creates the file, or empties it, with `first` in it.
  static Status Open(const std::string& path, TraceEvent first, std::unique_ptr<TraceFile>* out,
                     size_t most = kMost);

  // As Close.
  ~TraceFile();

  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Takes the event; false where it is refused. What ends something that was taken `must` be.
  bool Push(TraceEvent event, bool must) TFHVD_EXCLUDES(mutex_);

  // Writes what has come and ends the thread; an error where something could not be written.
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

  // The writer's; the opener's before it begins.
  int64_t end_ = 0;  // where the closing bracket begins

  Mutex mutex_;
  CondVar come_;
  std::vector<TraceEvent> waiting_ TFHVD_GUARDED_BY(mutex_);
  bool closing_ TFHVD_GUARDED_BY(mutex_) = false;
  Status status_ TFHVD_GUARDED_BY(mutex_);
  std::thread writer_;
};

// A JSON string, quotes and all.
std::string JsonString(const std::string& text);

}  // namespace tfhvd
