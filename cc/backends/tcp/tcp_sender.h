// TcpSender: the connection over which this process sends a peer its data, or its messages of the
// negotiation. Made when there is something to send; tries the peer's addresses one after the other
// until one of them says welcome.
//
// One thread. Nothing blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "cc/backends/tcp/tcp_frame.h"
#include "cc/backends/tcp/tcp_handshake.h"
#include "cc/backends/tcp/tcp_inboxes.h"
#include "cc/backends/tcp/tcp_socket.h"
#include "cc/base/status.h"

namespace tfhvd {

class TcpSender {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State {
    kIdle,        // there was nothing to send yet
    kConnecting,  // until the peer has said welcome
    kOpen,
    kOver,  // the peer has left, or is lost
  };

  // `addresses`: the peer's, at least one.
  TcpSender(std::string token, const TcpCall& call, std::vector<std::string> addresses)
      : token_(std::move(token)), call_(call), addresses_(std::move(addresses)) {}

  State state() const { return state_; }
  // To be watched; -1 while there is none. Another one, which may have the same number, has another
  // serial number; that changes only within Advance and Fail.
  int fd() const { return fd_.get(); }
  int serial() const { return serial_; }
  bool wants_to_write() const;
  // Whether all that was appended has been handed to the kernel.
  bool flushed() const { return queue_.empty(); }

  // Both append a frame, for Advance to send. REQUIRES: not over.
  void Append(const TcpHeader& header, const TcpTransfer& transfer);
  void Append(const TcpHeader& header, std::string bytes);

  // Something was appended, the socket is writable, or `readable`, or time has passed. Not ok: the
  // peer is lost.
  Status Advance(bool readable);

  // Forgets what `owner` has appended: what is half sent goes on from a copy.
  void TakeBack(const TcpOwner* owner);
  // It is over: what was not sent fails.
  void Fail(const Status& why);

 private:
  struct Frame {
    TcpHeader header;
    const char* data = nullptr;
    int64_t sent = 0;  // of the header and the bytes
    std::string copy;  // of the bytes, where no owner keeps them
    TcpOwner* owner = nullptr;
    int64_t id = 0;

    int64_t bytes() const { return static_cast<int64_t>(header.bytes); }
    int64_t left() const { return static_cast<int64_t>(sizeof header) + bytes() - sent; }
  };

  Status Connect();
  Status TryAgain(const std::string& why);
  // Sends something short to a socket that was opened a moment ago.
  bool Say(const std::string& bytes) const;
  Status Greet();
  Status Listen();
  // Takes a part of the answer to the greeting.
  Status Prove(const std::string& bytes);
  Status Write();

  const std::string token_;
  const TcpCall call_;
  const std::vector<std::string> addresses_;
  State state_ = State::kIdle;
  Fd fd_;
  int serial_ = 0;
  size_t address_ = 0;                   // that is tried
  bool connected_ = false;               // the greeting has been sent
  std::optional<TcpCalling> handshake_;  // of this connection, until the peer has proved itself
  Clock::time_point until_;              // when the next address is tried
  Clock::time_point give_up_at_;
  std::list<Frame> queue_;
};

}  // namespace tfhvd
