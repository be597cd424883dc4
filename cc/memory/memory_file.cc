#include "cc/memory/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

namespace tfhvd {

MemoryFile::MemoryFile(const char* name, size_t bytes)
    : size_(bytes), file_(memfd_create(name, MFD_CLOEXEC)) {
  if (file_.valid() && ftruncate(file(), static_cast<off_t>(bytes)) != 0) file_.Reset();
  const int how = file_.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, how, file(), 0);
  if (p != MAP_FAILED) data_ = static_cast<char*>(p);
}

MemoryFile::~MemoryFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace tfhvd
