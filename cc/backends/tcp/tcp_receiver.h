// TcpReceiver: receives a peer's frames over a connection. Reads their bytes into the memory that a
// TcpInboxes gives.
//
// One thread. Nothing blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/backends/tcp/tcp_frame.h"
#include "cc/backends/tcp/tcp_inboxes.h"
#include "cc/backends/tcp/tcp_socket.h"
#include "cc/base/status.h"

namespace tfhvd {

class TcpReceiver {
 public:
  // Receives each message of the negotiation.
  using OnMessage = std::function<void(const TcpPlace& place, std::string bytes)>;

  enum class End {
    kNone,    // the connection is open
    kUnused,  // closed before a byte arrived: no peer has failed
    kBye,     // the peer has left
    kLost,
    kTooLong,  // no memory for the announced frame: see announced
  };

  // Both pointers must outlive this object.
  TcpReceiver(Fd fd, int peer, TcpTraffic traffic, TcpInboxes* inboxes,
              const OnMessage* on_message);

  int fd() const { return fd_.get(); }
  int peer() const { return peer_; }
  TcpTraffic traffic() const { return traffic_; }

  // Returns how many bytes the last header announced.
  uint64_t announced() const { return static_cast<uint64_t>(bytes_); }

  // Reads what has arrived, but limits the bytes, so that other connections get their turn.
  End Advance();
  // Tells the peer that this process leaves.
  void SayBye();

 private:
  enum class Read { kSome, kNothing, kEnd };

  Read Fill(int64_t* budget);
  bool BeginFrame(End* end);
  bool MakeRoom(uint64_t bytes);
  void EndFrame();
  int64_t buffered() const { return static_cast<int64_t>(end_ - begin_); }
  char* target() const { return frame_ != nullptr ? frame_->target : &message_[0]; }

  Fd fd_;
  const int peer_;
  const TcpTraffic traffic_;
  TcpInboxes* const inboxes_;          // Not owned.
  const OnMessage* const on_message_;  // Not owned.
  bool had_frames_ = false;
  std::vector<char> buffer_;  // bytes after the present frame
  size_t begin_ = 0;
  size_t end_ = 0;

  // The present frame: data, or a message.
  bool in_frame_ = false;
  int64_t bytes_ = 0;
  int64_t done_ = 0;
  TcpPlace place_;
  std::shared_ptr<TcpInboxes::Frame> frame_;
  mutable std::string message_;
};

}  // namespace tfhvd
