// TcpInboxes: matches frames of data with the memory that receives them; either may be there first.
// Pure, except that its caller writes the bytes to the given memory.
//
// Frames of one place match the transfers that are posted for it, in order, and have the same
// lengths. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

// The owner of transfers. Must not call back from within a call.
class TcpOwner {
 public:
  virtual ~TcpOwner() = default;
  virtual void OnDone(int64_t id) = 0;
  virtual void OnError(int64_t id, const Status& why) = 0;
};

// An owner's memory that is sent, or received into.
struct TcpTransfer {
  char* data = nullptr;
  int64_t bytes = 0;
  TcpOwner* owner = nullptr;
  int64_t id = 0;
};

// The address of frames: in one World, the communicator with this tag on this rank.
struct TcpPlace {
  int peer = 0;  // the rank that sends or receives them
  uint64_t context = 0;
  uint32_t tag = 0;

  bool operator<(const TcpPlace& other) const {
    return std::tie(peer, context, tag) < std::tie(other.peer, other.context, other.tag);
  }
};

class TcpInboxes {
 public:
  // An incoming frame.
  struct Frame {
    TcpPlace place;
    int64_t bytes = 0;
    char* target = nullptr;        // the memory for its bytes; null: drop them
    std::unique_ptr<char[]> kept;  // memory for its bytes until a receive asks for them
    std::optional<TcpTransfer> transfer;
    bool whole = false;
  };

  // Returns whether a frame that has arrived, or is arriving, belongs to this transfer, which then
  // completes now or later.
  bool Match(const TcpPlace& from, const TcpTransfer& transfer);
  // Makes the transfer wait for the next frame. REQUIRES: Match has just returned false.
  void Post(const TcpPlace& from, const TcpTransfer& transfer) {
    boxes_[from].posted.push_back(transfer);
  }

  // Begins a frame. All of its bytes go to its target, which may change before End. Throws
  // std::bad_alloc, and changes nothing, if no receive has asked for the frame yet and there is no
  // memory to keep it.
  std::shared_ptr<Frame> Begin(const TcpPlace& from, int64_t bytes);
  void End(const std::shared_ptr<Frame>& frame);

  // Forgets the transfers of `owner`: their memory is no longer touched.
  void TakeBack(const TcpOwner* owner);
  // Drops frames of this tag from now on.
  void Close(uint64_t context, uint32_t tag);
  // Records that nothing more comes from the peer: the transfers that wait for it fail.
  void Fail(int peer, const Status& why);

 private:
  struct Box {
    std::deque<TcpTransfer> posted;
    // No receive has asked for them, or they are incomplete.
    std::deque<std::shared_ptr<Frame>> early;
  };

  std::map<TcpPlace, Box> boxes_;
  std::vector<std::shared_ptr<Frame>> coming_;  // between Begin and End
  std::set<std::pair<uint64_t, uint32_t>> closed_;
};

}  // namespace tfhvd
