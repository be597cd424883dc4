// TcpSender: the connection over which this process sends a peer its data, or its messages of the
// negotiation. It is made when there is something to send, and tries the peer's addresses one after
// the other until the peer accepts it (kTcpWelcome).
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
    kIdle,        // nothing to send so far
    kConnecting,  // until the peer has sent kTcpWelcome
    kOpen,
    kOver,  // the peer has left or failed
  };

  // `addresses`: of the peer, at least one.
  TcpSender(std::string token, const TcpCall& call, std::vector<std::string> addresses)
      : token_(std::move(token)), call_(call), addresses_(std::move(addresses)) {}

  State state() const { return state_; }
  // Returns the socket to watch; -1 if there is none. A new socket may have the same descriptor,
  // but has another serial number; it changes only within Advance and Fail.
  int fd() const { return fd_.get(); }
  int serial() const { return serial_; }
  bool wants_to_write() const;
  // Returns whether all appended frames have been given to the kernel.
  bool flushed() const { return queue_.empty(); }

  // Both append a frame, for Advance to send. REQUIRES: state() is not kOver.
  void Append(const TcpHeader& header, const TcpTransfer& transfer);
  void Append(const TcpHeader& header, std::string bytes);

  // Makes progress after a frame was appended, the socket is writable or `readable`, or time has
  // passed. Returns an error if the peer has failed.
  Status Advance(bool readable);

  // Forgets the frames of `owner`; the rest of a partly sent frame is sent from a copy.
  void TakeBack(const TcpOwner* owner);
  // Ends the connection: unsent frames fail.
  void Fail(const Status& why);

 private:
  struct Frame {
    TcpHeader header;
    const char* data = nullptr;
    int64_t sent = 0;  // of the header and the bytes
    std::string copy;  // of the bytes, if no owner keeps them
    TcpOwner* owner = nullptr;
    int64_t id = 0;

    int64_t bytes() const { return static_cast<int64_t>(header.bytes); }
    int64_t left() const { return static_cast<int64_t>(sizeof header) + bytes() - sent; }
  };

  Status Connect();
  Status TryAgain(const std::string& why);
  // Sends a few bytes to a socket that was just opened.
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
  size_t address_ = 0;                   // index of the present address
  bool connected_ = false;               // the greeting has been sent
  std::optional<TcpCalling> handshake_;  // of this connection, until the peer has proved itself
  Clock::time_point until_;              // when to try the next address
  Clock::time_point give_up_at_;
  std::list<Frame> queue_;
};

}  // namespace tfhvd
