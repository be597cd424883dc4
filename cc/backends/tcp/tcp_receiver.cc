#include "cc/backends/tcp/tcp_receiver.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tfhvd {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// Bytes that one connection may bring before others have their turn.
constexpr int64_t kTurn = 4 << 20;
constexpr std::chrono::seconds kForHandshake(10);

// Without telling by its time how much of it was right.
bool SameToken(const std::string& token, const char* given) {
  unsigned different = token.size() == kTcpTokenBytes ? 0 : 1;
  for (size_t i = 0; i < kTcpTokenBytes && i < token.size(); ++i) {
    different |= static_cast<unsigned char>(token[i] ^ given[i]);
  }
  return different == 0;
}

}  // namespace

TcpReceiver::TcpReceiver(Fd fd, int rank, int size, const std::string& token, TcpInboxes* inboxes,
                         const OnMessage* on_message)
    : fd_(std::move(fd)),
      rank_(rank),
      size_(size),
      token_(token),
      inboxes_(inboxes),
      on_message_(on_message),
      until_(Clock::now() + kForHandshake) {
  SetSocketOptions(fd_.get());
}

TcpReceiver::End TcpReceiver::Advance() {
  int64_t budget = kTurn;
  while (true) {
    if (in_frame_ && done_ == bytes_) EndFrame();
    bool over = false;
    if (peer_ < 0) {
      if (TakeHandshake(&over)) continue;
      if (over) return End::kStranger;
    } else if (!in_frame_) {
      if (BeginFrame(&over)) continue;
      if (over) return End::kBye;
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
    if (read == Read::kEnd) return had_frames_ ? End::kLost : End::kStranger;
  }
}

// Straight to where a frame goes, where much of it is missing; else into the buffer.
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

bool TcpReceiver::TakeHandshake(bool* refused) {
  TcpHandshake handshake;
  if (buffered() < static_cast<int64_t>(sizeof handshake)) return false;
  const TcpHandshake expected;
  std::memcpy(&handshake, buffer_.data() + begin_, sizeof handshake);
  const char welcome = kTcpWelcome;
  *refused = std::memcmp(handshake.magic, expected.magic, sizeof handshake.magic) != 0 ||
             handshake.version != expected.version || !SameToken(token_, handshake.token) ||
             handshake.to != static_cast<uint32_t>(rank_) ||
             handshake.from >= static_cast<uint32_t>(size_) ||
             handshake.traffic >= static_cast<uint32_t>(kTcpTraffics) ||
             send(fd_.get(), &welcome, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1;
  if (*refused) return false;
  begin_ += sizeof handshake;
  peer_ = static_cast<int>(handshake.from);
  traffic_ = static_cast<TcpTraffic>(handshake.traffic);
  return true;
}

bool TcpReceiver::BeginFrame(bool* bye) {
  TcpHeader header;
  if (buffered() < static_cast<int64_t>(sizeof header)) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  begin_ += sizeof header;
  had_frames_ = true;
  *bye = header.bye != 0;
  if (*bye) return false;
  in_frame_ = true;
  bytes_ = static_cast<int64_t>(header.bytes);
  done_ = 0;
  place_ = {peer_, header.context, header.tag};
  if (traffic_ == TcpTraffic::kData) {
    frame_ = inboxes_->Begin(place_, bytes_);
  } else {
    message_.resize(static_cast<size_t>(bytes_));
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
  if (peer_ >= 0) (void)send(fd_.get(), &bye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace tfhvd
