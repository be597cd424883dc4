// TcpReceiver: a connection over which frames come in, from a peer or, until it has sent its
// handshake, from anybody. Reads the frames' bytes to where a sink wants them.
//
// One thread. Nothing blocks.
#pragma once

#include <chrono>
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
  using Clock = std::chrono::steady_clock;

  // A message of the negotiation, as it comes.
  using OnMessage = std::function<void(const TcpPlace& place, std::string bytes)>;

  enum class End {
    kNone,      // it goes on
    kStranger,  // it was no peer's, or was given up before anything came: nobody is lost
    kBye,       // the peer has left
    kLost,
  };

  // `rank`: this process's, of `size`. Both of the others outlive it.
  TcpReceiver(Fd fd, int rank, int size, const std::string& token, TcpInboxes* inboxes,
              const OnMessage* on_message);

  int fd() const { return fd_.get(); }
  // -1: it has not sent its handshake.
  int peer() const { return peer_; }
  TcpTraffic traffic() const { return traffic_; }

  // Reads what has come, but no more than it takes for others to have their turn.
  End Advance();
  // Whether a handshake is due by now.
  bool IsLate(Clock::time_point now) const { return peer_ < 0 && now >= until_; }
  // Until when the handshake must have come.
  Clock::time_point until() const { return until_; }
  // Says that this process leaves.
  void SayBye();

 private:
  enum class Read { kSome, kNothing, kEnd };

  Read Fill(int64_t* budget);
  bool TakeHandshake(bool* refused);
  bool BeginFrame(bool* bye);
  void EndFrame();
  int64_t buffered() const { return static_cast<int64_t>(end_ - begin_); }
  char* target() const { return frame_ != nullptr ? frame_->target : &message_[0]; }

  Fd fd_;
  const int rank_;
  const int size_;
  const std::string& token_;
  TcpInboxes* const inboxes_;          // Not owned.
  const OnMessage* const on_message_;  // Not owned.
  const Clock::time_point until_;      // for the handshake
  int peer_ = -1;
  TcpTraffic traffic_ = TcpTraffic::kData;
  bool had_frames_ = false;
  std::vector<char> buffer_;  // what came beyond what is under way
  size_t begin_ = 0;
  size_t end_ = 0;

  // The frame under way: data, or a message.
  bool in_frame_ = false;
  int64_t bytes_ = 0;
  int64_t done_ = 0;
  TcpPlace place_;
  std::shared_ptr<TcpInboxes::Frame> frame_;
  mutable std::string message_;
};

}  // namespace tfhvd
