// MemoryFile: zeroed memory that other processes can read as a file, also after this one has ended,
// as long as they hold it. It has no name, and takes space as it is written.
#pragma once

#include <cstddef>

#include "cc/base/fd.h"

namespace tfhvd {

class MemoryFile {
 public:
  // `name` is what /proc shows. Where the system gives no such file (file() is -1) it is memory of
  // this process alone, and where there is none of that either, data() is null.
  MemoryFile(const char* name, size_t bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // The descriptor, as long as this object lives.
  int file() const { return file_.get(); }

 private:
  const size_t size_;
  Fd file_;
  char* data_ = nullptr;
};

}  // namespace tfhvd
