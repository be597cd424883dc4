#include "cc/observe/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

namespace tfhvd {
namespace {

// The most recent time of which a killed process may lose the events.
constexpr std::chrono::milliseconds kFlushEvery{200};
// The number of waiting events that wakes the writer earlier.
constexpr size_t kMany = TraceFile::kMost / 16;
constexpr size_t kBytesAtOnce = 1 << 20;

constexpr const char* kClosing = "\n]\n";

void AppendJson(const TraceEvent& event, std::string* text) {
  char numbers[96];
  *text += "{\"ph\": \"";
  *text += event.phase;
  *text += '"';
  if (event.name != nullptr) *text += ", \"name\": " + JsonString(event.name);
  std::snprintf(numbers, sizeof numbers,
                ", \"ts\": %" PRId64 ".%03d, \"pid\": %" PRId64 ", \"tid\": %" PRId32,
                event.nanoseconds / 1000, static_cast<int>(event.nanoseconds % 1000), event.row,
                event.lane);
  *text += numbers;
  if (event.phase == 'X') *text += ", \"dur\": 0";
  if (event.phase == 'i') *text += ", \"s\": \"g\"";
  if (!event.args.empty()) *text += ", \"args\": " + event.args;
  *text += '}';
}

}  // namespace

std::string JsonString(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      json += escaped;
    } else {
      json += c;
    }
  }
  return json + "\"";
}

Status TraceFile::Open(const std::string& path, TraceEvent first, std::unique_ptr<TraceFile>* out,
                       size_t most) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return Status::InvalidArgument("cannot write the timeline. Received: '" + path +
                                   "': " + std::strerror(errno) +
                                   ". Expected: a file in a folder that exists and is writable.");
  }
  std::unique_ptr<TraceFile> file(new TraceFile(descriptor, path, most));
  struct stat about = {};
  if (fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) {
    return Status::InvalidArgument("cannot write the timeline. Received: '" + path +
                                   "', which is no regular file. Expected: the name of a file.");
  }
  std::string text = "[\n";
  AppendJson(first, &text);
  TFHVD_RETURN_IF_ERROR(file->WriteAt(0, text + kClosing));
  file->end_ = static_cast<int64_t>(text.size());
  TraceFile* const self = file.get();
  file->writer_ = std::thread([self] { self->Run(); });
  *out = std::move(file);
  return Status::Ok();
}

TraceFile::~TraceFile() {
  (void)Close();  // callers that need the error call Close before
  close(descriptor_);
}

bool TraceFile::Push(TraceEvent event, bool must) {
  const MutexLock lock(&mutex_);
  if (closing_ || !status_.ok() || (waiting_.size() >= most_ && !must)) return false;
  waiting_.push_back(std::move(event));
  if (waiting_.size() == kMany) come_.NotifyOne();
  return true;
}

Status TraceFile::Close() {
  {
    const MutexLock lock(&mutex_);
    closing_ = true;
    come_.NotifyOne();
  }
  if (writer_.joinable()) writer_.join();
  const MutexLock lock(&mutex_);
  return status_;
}

void TraceFile::Run() {
  bool closing = false;
  while (!closing) {
    std::vector<TraceEvent> events;
    {
      const MutexLock lock(&mutex_);
      if (!closing_ && waiting_.size() < kMany) come_.WaitFor(&mutex_, kFlushEvery);
      closing = closing_;
      events.swap(waiting_);
    }
    Status status = Append(events);
    if (status.ok()) continue;
    const MutexLock lock(&mutex_);
    if (status_.ok()) status_ = std::move(status);
    waiting_.clear();
  }
}

Status TraceFile::Append(const std::vector<TraceEvent>& events) {
  std::string text;
  for (const TraceEvent& event : events) {
    text += ",\n";
    AppendJson(event, &text);
    if (text.size() < kBytesAtOnce) continue;
    TFHVD_RETURN_IF_ERROR(AppendText(text));
    text.clear();
  }
  return text.empty() ? Status::Ok() : AppendText(text);
}

// Overwrites the closing bracket, and adds another one, in one call.
Status TraceFile::AppendText(const std::string& text) {
  Status status = WriteAt(end_, text + kClosing);
  if (status.ok()) {
    end_ += static_cast<int64_t>(text.size());
    return status;
  }
  // Restores the file, for which there was space.
  if (ftruncate(descriptor_, end_) == 0) (void)WriteAt(end_, kClosing);
  return status;
}

Status TraceFile::WriteAt(int64_t offset, const std::string& text) const {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = pwrite(descriptor_, text.data() + written, text.size() - written,
                             static_cast<off_t>(offset + static_cast<int64_t>(written)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return Status::Unavailable("the timeline is incomplete: cannot write to '" + path_ +
                                 "': " + std::strerror(errno));
    }
    written += static_cast<size_t>(n);
  }
  return Status::Ok();
}

}  // namespace tfhvd
