// SharedMemory: zeroed memory that processes of one host share. Each process reserves the parts
// that it writes: so they are on its NUMA node, and cannot be missing later.
//
// It has no name: it is an anonymous file that peers open through the owner's entry in /proc. So
// nothing is left to clean up after a killed job, and the size of /dev/shm does not matter. In
// another container a process number means another process. Therefore a peer checks that the file
// belongs to the owner, and compares the random bytes behind the memory with those that the owner
// sent.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/fd.h"
#include "cc/base/status.h"

namespace tfhvd {

class SharedMemory {
 public:
  struct Part {
    int64_t begin = 0;
    int64_t bytes = 0;
  };

  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { Swap(&other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    Swap(&other);
    return *this;
  }

  // How a peer finds the memory and distinguishes it from any other. Plain bytes, to be sent.
  struct Handle {
    int64_t pid = 0;  // of the owner; 0: there is no memory
    int64_t file = -1;
    uint64_t pid_namespace = 0;  // in which `pid` is valid
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t nonce[2] = {0, 0};

    std::string path() const;
  };

  // Makes `bytes` bytes, or returns kUnavailable. A part must not be touched before a process has
  // reserved it.
  static Status Create(int64_t bytes, SharedMemory* out);

  // Maps the memory of another process on this host. Returns kUnavailable if that process cannot be
  // seen (another container, another user), or if the file found is not this memory.
  static Status Open(const Handle& handle, int64_t bytes, SharedMemory* out);

  // Backs these bytes with memory now, on this process's NUMA node unless another process was first
  // on the same page; returns kUnavailable if there is no memory left. Only before Seal.
  Status Reserve(const Part& part);

  // For peers; valid during the life of this object until Seal. Owner only.
  Handle handle() const;

  // Gives up the file and keeps the mapping: every peer has mapped and reserved its parts.
  void Seal();

  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void Swap(SharedMemory* other);
  Status Map(int64_t bytes);
  char* nonce() const { return data_ + size_; }

  Fd file_;
  char* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tfhvd
