// TcpInboxes: brings frames of data together with the memory that they are to go to, whichever is
// there first. Pure, but for the bytes that somebody else puts where it says.
//
// Frames of one place match what is posted for it in order, and have the same length. One thread.
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

// Who has posted transfers. Must not call back from within.
class TcpOwner {
 public:
  virtual ~TcpOwner() = default;
  virtual void OnDone(int64_t id) = 0;
  virtual void OnError(int64_t id, const Status& why) = 0;
};

// Memory of an owner's that is sent, or received into.
struct TcpTransfer {
  char* data = nullptr;
  int64_t bytes = 0;
  TcpOwner* owner = nullptr;
  int64_t id = 0;
};

// Where frames go: to the communicator with this tag, in one World, on this rank.
struct TcpPlace {
  int peer = 0;  // who sends them, or is sent them
  uint64_t context = 0;
  uint32_t tag = 0;

  bool operator<(const TcpPlace& other) const {
    return std::tie(peer, context, tag) < std::tie(other.peer, other.context, other.tag);
  }
};

class TcpInboxes {
 public:
  // A frame that comes in.
  struct Frame {
    TcpPlace place;
    int64_t bytes = 0;
    char* target = nullptr;        // where its bytes go; null: nowhere
    std::unique_ptr<char[]> kept;  // where they are until somebody asks for them
    std::optional<TcpTransfer> transfer;
    bool whole = false;
  };

  // Whether a frame that has come, or is coming, is for this one; it is done then, or will be.
  bool Match(const TcpPlace& from, const TcpTransfer& transfer);
  // It waits for the next frame. REQUIRES: Match has just said no.
  void Post(const TcpPlace& from, const TcpTransfer& transfer) {
    boxes_[from].posted.push_back(transfer);
  }

  // A frame begins; all of its bytes go to its target, which may change, before End. Throws
  // std::bad_alloc, and changes nothing, if no receive has asked for the frame yet and there is no
  // memory to keep it.
  std::shared_ptr<Frame> Begin(const TcpPlace& from, int64_t bytes);
  void End(const std::shared_ptr<Frame>& frame);

  // Forgets what `owner` has posted: nothing of it is touched any more.
  void TakeBack(const TcpOwner* owner);
  // Frames of this tag go nowhere from now on.
  void Close(uint64_t context, uint32_t tag);
  // Nothing more comes from the peer: what waits for that fails.
  void Fail(int peer, const Status& why);

 private:
  struct Box {
    std::deque<TcpTransfer> posted;
    std::deque<std::shared_ptr<Frame>> early;  // nobody has asked for, or not whole yet
  };

  std::map<TcpPlace, Box> boxes_;
  std::vector<std::shared_ptr<Frame>> coming_;  // between Begin and End
  std::set<std::pair<uint64_t, uint32_t>> closed_;
};

}  // namespace tfhvd
