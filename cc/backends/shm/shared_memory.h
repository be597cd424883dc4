// SharedMemory: a zeroed stretch of memory that processes of one host share. Each of them reserves
// the parts that it writes: so they lie on its own NUMA node, and cannot be missing later.
//
// It has no name: it is an anonymous file that peers open through the owner's entry in /proc. So
// there is nothing to clean up after a job that was killed, and the size of /dev/shm does not
// matter. In another container a process number means another process. So a peer checks that the
// file is the owner's, and compares random bytes behind the memory with those that the owner sent.
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

  // How a peer finds the memory, and tells it from any other. Plain bytes, to be sent.
  struct Handle {
    int64_t pid = 0;  // of the owner; 0: there is no memory
    int64_t file = -1;
    uint64_t pid_namespace = 0;  // in which `pid` counts
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t nonce[2] = {0, 0};

    std::string path() const;
  };

  // Makes `bytes` bytes, or kUnavailable. None may be touched before somebody has reserved them.
  static Status Create(int64_t bytes, SharedMemory* out);

  // Maps what another process of this host has made. kUnavailable where that process cannot be seen
  // (another container, another user), or where what is seen is not this memory.
  static Status Open(const Handle& handle, int64_t bytes, SharedMemory* out);

  // Has these bytes backed by memory now, by that of this process's node where nobody else had the
  // same page first; kUnavailable where there is no more. Until Seal.
  Status Reserve(const Part& part);

  // For peers, as long as this object lives or Seal has not been called. Owner only.
  Handle handle() const;

  // Every peer has mapped and reserved what it needs: gives up the file, keeps the mapping.
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
