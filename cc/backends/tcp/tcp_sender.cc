#include "cc/backends/tcp/tcp_sender.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tfhvd {
namespace {

// How long an address may take to connect; and how long a peer, whose engine may be idle, may take
// to send kTcpWelcome.
constexpr std::chrono::seconds kToConnect(3);
constexpr std::chrono::seconds kToWelcome(30);
// How long all addresses may fail to connect before the peer counts as failed.
constexpr std::chrono::seconds kToGiveUp(30);
constexpr std::chrono::milliseconds kBetween(100);

constexpr size_t kAtOnce = 16;  // frames that one call writes

}  // namespace

bool TcpSender::wants_to_write() const {
  if (state_ == State::kConnecting) return !connected_;
  return state_ == State::kOpen && !queue_.empty();
}

void TcpSender::Append(const TcpHeader& header, const TcpTransfer& transfer) {
  Frame frame;
  frame.header = header;
  frame.data = transfer.data;
  frame.owner = transfer.owner;
  frame.id = transfer.id;
  queue_.push_back(std::move(frame));
}

void TcpSender::Append(const TcpHeader& header, std::string bytes) {
  queue_.emplace_back();
  queue_.back().header = header;
  queue_.back().copy = std::move(bytes);
  queue_.back().data = queue_.back().copy.data();
}

Status TcpSender::Advance(bool readable) {
  if (state_ == State::kOver || (state_ == State::kIdle && queue_.empty())) return Status::Ok();
  if (state_ == State::kIdle) {
    give_up_at_ = Clock::now() + kToGiveUp;
    return Connect();
  }
  if (state_ == State::kConnecting) {
    if (!fd_.valid()) return Clock::now() < until_ ? Status::Ok() : Connect();
    if (!connected_) {
      pollfd ready = {fd_.get(), POLLOUT, 0};
      if (poll(&ready, 1, 0) <= 0) {
        return Clock::now() < until_ ? Status::Ok() : TryAgain("no answer");
      }
      const int error = ConnectError(fd_.get());
      if (error != 0) return TryAgain(std::strerror(error));
      TFHVD_RETURN_IF_ERROR(Greet());
    }
  }
  if (readable || state_ == State::kConnecting) TFHVD_RETURN_IF_ERROR(Listen());
  return state_ == State::kOpen ? Write() : Status::Ok();
}

Status TcpSender::Connect() {
  state_ = State::kConnecting;
  connected_ = false;
  until_ = Clock::now() + kToConnect;
  ++serial_;
  const Status begun = BeginConnect(addresses_[address_], &fd_);
  return begun.ok() ? begun : TryAgain(begun.message());
}

// Tries the next address; after the last one, the first one again after a moment.
Status TcpSender::TryAgain(const std::string& why) {
  const std::string address = addresses_[address_];
  fd_.Reset();
  ++serial_;
  if (connected_) give_up_at_ = Clock::now() + kToGiveUp;  // the peer exists
  if (Clock::now() >= give_up_at_) {
    return Status::Aborted("none of its addresses can be reached; the last one was " + address +
                           ": " + why);
  }
  address_ = (address_ + 1) % addresses_.size();
  if (address_ != 0) return Connect();
  until_ = Clock::now() + kBetween;
  connected_ = false;
  return Status::Ok();
}

bool TcpSender::Say(const std::string& bytes) const {
  // A new socket's buffer takes all bytes.
  return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Status TcpSender::Greet() {
  std::string nonce;
  const Status made = MakeNonce(&nonce);
  if (!made.ok()) return TryAgain(made.message());
  handshake_.emplace(token_, call_, nonce);
  if (!Say(handshake_->greeting())) return TryAgain(std::strerror(errno));
  connected_ = true;
  until_ = Clock::now() + kToWelcome;
  return Status::Ok();
}

Status TcpSender::Prove(const std::string& bytes) {
  std::string proof;
  const Status took = handshake_->Feed(bytes, &proof);
  if (!took.ok()) return TryAgain(took.message());
  if (handshake_->missing() > 0) return took;
  handshake_.reset();
  return Say(proof) ? took : TryAgain(std::strerror(errno));
}

// Reads what the peer sends: the answer to the greeting, and then one byte, kTcpWelcome or kTcpBye.
Status TcpSender::Listen() {
  while (fd_.valid() && connected_) {
    std::string bytes(handshake_.has_value() ? handshake_->missing() : 1, '\0');
    const ssize_t got = recv(fd_.get(), &bytes[0], bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got > 0 && handshake_.has_value()) {
      TFHVD_RETURN_IF_ERROR(Prove(bytes.substr(0, static_cast<size_t>(got))));
      continue;
    }
    const char word = bytes[0];
    if (got == 1 && word == kTcpWelcome) {
      state_ = State::kOpen;
    } else if (got == 1 && word == kTcpBye) {
      state_ = State::kOver;
      return Status::Ok();
    } else if (state_ == State::kConnecting) {
      return TryAgain("it speaks another language, or is of another job");
    } else {
      return Status::Aborted(got == 0
                                 ? "its connection has been closed"
                                 : std::string("its connection failed: ") + std::strerror(errno));
    }
  }
  if (state_ == State::kConnecting && Clock::now() >= until_) return TryAgain("it said nothing");
  return Status::Ok();
}

Status TcpSender::Write() {
  while (!queue_.empty()) {
    iovec parts[2 * kAtOnce];
    size_t count = 0;
    for (const Frame& frame : queue_) {
      if (count + 2 > 2 * kAtOnce) break;
      const int64_t head = sizeof frame.header;
      if (frame.sent < head) {
        char* const at = reinterpret_cast<char*>(const_cast<TcpHeader*>(&frame.header));
        parts[count++] = {at + frame.sent, static_cast<size_t>(head - frame.sent)};
      }
      const int64_t done = std::max<int64_t>(0, frame.sent - head);
      if (done < frame.bytes()) {
        parts[count++] = {const_cast<char*>(frame.data) + done,
                          static_cast<size_t>(frame.bytes() - done)};
      }
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Status::Ok();
    if (sent < 0) {
      return Status::Aborted(std::string("its connection failed: ") + std::strerror(errno));
    }
    while (sent > 0) {
      Frame& frame = queue_.front();
      const int64_t part = std::min<int64_t>(sent, frame.left());
      frame.sent += part;
      sent -= static_cast<ssize_t>(part);
      if (frame.left() > 0) break;
      TcpOwner* const owner = frame.owner;
      const int64_t id = frame.id;
      queue_.pop_front();
      if (owner != nullptr) owner->OnDone(id);
    }
  }
  return Status::Ok();
}

void TcpSender::TakeBack(const TcpOwner* owner) {
  for (auto frame = queue_.begin(); frame != queue_.end();) {
    if (frame->owner != owner) {
      ++frame;
    } else if (frame->sent == 0) {
      frame = queue_.erase(frame);
    } else {
      frame->copy.assign(frame->data, static_cast<size_t>(frame->bytes()));
      frame->data = frame->copy.data();
      frame->owner = nullptr;
      ++frame;
    }
  }
}

void TcpSender::Fail(const Status& why) {
  state_ = State::kOver;
  fd_.Reset();
  ++serial_;
  std::list<Frame> left;
  left.swap(queue_);
  for (const Frame& frame : left) {
    if (frame.owner != nullptr) frame.owner->OnError(frame.id, why);
  }
}

}  // namespace tfhvd
