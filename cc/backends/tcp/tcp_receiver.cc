#include "cc/backends/tcp/tcp_receiver.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace tfhvd {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// Bytes that one connection may bring before others get their turn.
constexpr int64_t kTurn = 4 << 20;
// Messages of the negotiation are much shorter than this in any job.
constexpr uint64_t kMostInMessage = 1 << 30;

}  // namespace

TcpReceiver::TcpReceiver(Fd fd, int peer, TcpTraffic traffic, TcpInboxes* inboxes,
                         const OnMessage* on_message)
    : fd_(std::move(fd)),
      peer_(peer),
      traffic_(traffic),
      inboxes_(inboxes),
      on_message_(on_message) {}

TcpReceiver::End TcpReceiver::Advance() {
  int64_t budget = kTurn;
  while (true) {
    if (in_frame_ && done_ == bytes_) EndFrame();
    if (!in_frame_) {
      End end = End::kNone;
      if (BeginFrame(&end)) continue;
      if (end != End::kNone) return end;
    } else if (buffered() > 0) {
      const int64_t part = std::min(buffered(), bytes_ - done_);
      if (target() != nullptr) {
        std::memcpy(target() + done_, buffer_.data() + begin_, static_cast<size_t>(part));
      }
      begin_ += static_cast<size_t>(part);
      done_ += part;
      continue;
    }
    if (budget <= 0) return End::kNone;
    const Read read = Fill(&budget);
    if (read == Read::kNothing) return End::kNone;
    if (read == Read::kEnd) return had_frames_ ? End::kLost : End::kUnused;
  }
}

// Reads straight into the frame's memory if much of the frame is missing; otherwise into the
// buffer.
TcpReceiver::Read TcpReceiver::Fill(int64_t* budget) {
  char* to = nullptr;
  size_t room = 0;
  const bool straight =
      in_frame_ && target() != nullptr && bytes_ - done_ >= static_cast<int64_t>(kBufferBytes);
  if (straight) {
    to = target() + done_;
    room = static_cast<size_t>(bytes_ - done_);
  } else {
    if (buffer_.empty()) buffer_.resize(kBufferBytes);
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    to = buffer_.data() + end_;
    room = buffer_.size() - end_;
  }
  while (true) {
    const ssize_t got = recv(fd_.get(), to, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Read::kNothing;
    if (got <= 0) return Read::kEnd;
    *budget -= got;
    if (straight) {
      done_ += got;
    } else {
      end_ += static_cast<size_t>(got);
    }
    return Read::kSome;
  }
}

// Returns false if there is no complete header yet, or it ends the connection.
bool TcpReceiver::BeginFrame(End* end) {
  TcpHeader header;
  if (buffered() < static_cast<int64_t>(sizeof header)) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  begin_ += sizeof header;
  had_frames_ = true;
  if (header.bye != 0) *end = End::kBye;
  if (header.bye != 0) return false;
  place_ = {peer_, header.context, header.tag};
  in_frame_ = MakeRoom(header.bytes);
  bytes_ = static_cast<int64_t>(header.bytes);
  done_ = 0;
  if (!in_frame_) *end = End::kTooLong;
  return in_frame_;
}

// The number of bytes in a header is unchecked input from a peer.
bool TcpReceiver::MakeRoom(uint64_t bytes) {
  const bool data = traffic_ == TcpTraffic::kData;
  if (bytes > (data ? uint64_t{std::numeric_limits<int64_t>::max()} : kMostInMessage)) return false;
  try {
    if (data) {
      frame_ = inboxes_->Begin(place_, static_cast<int64_t>(bytes));
    } else {
      message_.resize(static_cast<size_t>(bytes));
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void TcpReceiver::EndFrame() {
  in_frame_ = false;
  if (frame_ != nullptr) {
    inboxes_->End(frame_);
    frame_.reset();
  } else {
    (*on_message_)(place_, std::exchange(message_, {}));
  }
}

void TcpReceiver::SayBye() {
  const char bye = kTcpBye;
  (void)send(fd_.get(), &bye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace tfhvd
