// The ranks of a fake communicator, in shared memory: threads of one process or processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/backends/nccl/nccl_abi.h"

namespace fake {

constexpr int kMostRanks = 16;
constexpr size_t kSlotBytes = 256 << 10;
constexpr size_t kPieceBytes = 64 << 10;

// What a rank is about to do, shown to the others: all must be alike.
struct Header {
  char what[24] = {0};
  size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  double factor = 1.0;
};

// What travels from one rank to another: a piece at a time.
struct Line {
  std::atomic<unsigned long long> posted;
  std::atomic<unsigned long long> taken;
  size_t total;  // of the message that this piece belongs to
  size_t bytes;
  char piece[kPieceBytes];
};

// A send or a receive of a group.
struct Transfer {
  bool sends = false;
  int peer = 0;
  char* data = nullptr;
  size_t bytes = 0;
};

struct Shared {
  std::atomic<int> attached;
  std::atomic<unsigned long long> arrivals;
  Header headers[kMostRanks];
  char slots[kMostRanks][kSlotBytes];
  Line lines[kMostRanks][kMostRanks];  // from, to
};

// One rank's part. Used by one stream's thread, but for the atomics and `Fail`.
class Group {
 public:
  // Maps the memory of this name, and removes the name once all have.
  Group(std::string name, int rank, int size, bool reachable);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  bool complete() const { return shared_ != nullptr && shared_->attached.load() == size_; }
  int state() const { return state_.load(); }
  std::string last_error();
  void Abort() { aborted_.store(true); }
  void Fail(int result, const std::string& text);

  // All ranks show what they do; false where they differ, with an error on all, or on an abort.
  bool Begin(const Header& mine);
  // The ranks' bytes, a slot at a time: `process(offset, n)` when all have filled their slots with
  // [offset, offset + n) of theirs.
  void Exchange(const char* mine, size_t bytes, size_t longest,
                const std::function<void(size_t, size_t)>& process);
  // All of them at once, in any order, with those ranks alone that they name.
  void Transmit(std::vector<Transfer> transfers);
  const char* slot(int rank) const { return shared_->slots[rank]; }
  const Header& header(int rank) const { return shared_->headers[rank]; }

  std::atomic<int> calls{0};

 private:
  bool Meet();
  bool Progress(Transfer* transfer, size_t* done);
  void Hang();
  bool Fits() const;

  const std::string name_;
  const int rank_;
  const int size_;
  Shared* shared_ = nullptr;
  unsigned long long barriers_ = 0;
  std::atomic<bool> aborted_{false};
  std::atomic<int> state_{0};
  std::mutex mutex_;
  std::string last_error_;
};

}  // namespace fake
