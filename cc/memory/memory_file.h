// MemoryFile: zeroed memory that other processes can read as a file, also after this process has
// ended, as long as they hold it. It has no name, and takes space only for pages that are written.
#pragma once

#include <cstddef>

#include "cc/base/fd.h"

namespace tfhvd {

class MemoryFile {
 public:
  // `name` is what /proc shows. If the system provides no such file, file() is -1 and only this
  // process sees the memory. If there is no memory either, data() is null.
  MemoryFile(const char* name, size_t bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // The descriptor, valid during the life of this object.
  int file() const { return file_.get(); }

 private:
  const size_t size_;
  Fd file_;
  char* data_ = nullptr;
};

}  // namespace tfhvd
