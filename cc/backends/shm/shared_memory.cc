#include "cc/backends/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tfhvd {

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
  Seal();
}

void SharedMemory::Swap(SharedMemory* other) {
  std::swap(file_, other->file_);
  std::swap(data_, other->data_);
  std::swap(size_, other->size_);
}

void SharedMemory::Seal() {
  if (file_ >= 0) close(file_);
  file_ = -1;
}

Status SharedMemory::Map(int64_t bytes) {
  void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (p == MAP_FAILED) {
    return Status::Unavailable("cannot map " + std::to_string(bytes) +
                               " bytes of shared memory: " + std::strerror(errno));
  }
  data_ = static_cast<char*>(p);
  size_ = bytes;
  return Status::Ok();
}

Status SharedMemory::Create(int64_t bytes, SharedMemory* out) {
  SharedMemory made;
  made.file_ = memfd_create("tfhvd", MFD_CLOEXEC);
  if (made.file_ < 0) {
    return Status::Unavailable(std::string("cannot make shared memory: ") + std::strerror(errno));
  }
  const int error = posix_fallocate(made.file_, 0, bytes);
  if (error != 0) {
    return Status::Unavailable(
        "cannot get " + std::to_string(bytes) +
        " bytes of memory for the ranks of this host to share: " + std::strerror(error) +
        "; free some, or raise the limit of the container or of `ulimit -f`");
  }
  TFHVD_RETURN_IF_ERROR(made.Map(bytes));
  *out = std::move(made);
  return Status::Ok();
}

Status SharedMemory::Open(const std::string& address, int64_t bytes, SharedMemory* out) {
  SharedMemory opened;
  opened.file_ = open(address.c_str(), O_RDWR | O_CLOEXEC);
  if (opened.file_ < 0) {
    return Status::Unavailable("cannot open a peer's shared memory (" + address +
                               "): " + std::strerror(errno));
  }
  TFHVD_RETURN_IF_ERROR(opened.Map(bytes));
  opened.Seal();
  *out = std::move(opened);
  return Status::Ok();
}

std::string SharedMemory::address() const {
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_);
}

}  // namespace tfhvd
