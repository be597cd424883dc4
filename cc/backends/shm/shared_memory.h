// SharedMemory: a zeroed stretch of memory that processes of one host share.
//
// It has no name: it is an anonymous file that peers open through the owner's entry in /proc. So
// there is nothing to clean up after a job that was killed, two jobs cannot meet, and the size of
// /dev/shm does not matter.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace tfhvd {

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { Swap(&other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    Swap(&other);
    return *this;
  }

  // Makes `bytes` bytes (all of them backed by memory now, or kUnavailable).
  static Status Create(int64_t bytes, SharedMemory* out);

  // Maps what the process `pid` of this host has made, by its address(). kUnavailable where that
  // process cannot be seen (another container, another user).
  static Status Open(const std::string& address, int64_t bytes, SharedMemory* out);

  // How a peer finds it, as long as this object lives or Seal has not been called. Owner only.
  std::string address() const;

  // Every peer has mapped it: gives up the file, keeps the mapping.
  void Seal();

  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  void Swap(SharedMemory* other);
  Status Map(int64_t bytes);

  int file_ = -1;
  char* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tfhvd
