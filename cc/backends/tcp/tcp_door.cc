#include "cc/backends/tcp/tcp_door.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cc/backends/tcp/tcp_socket.h"

namespace tfhvd {
namespace {

constexpr int kEvents = 64;
// The number of connections without a handshake that a process holds, in addition to one for each
// connection of its peers.
constexpr int kMoreStrangers = 32;
constexpr std::chrono::seconds kForHandshake(10);
// How long the door accepts nothing when the process is short of descriptors.
constexpr std::chrono::milliseconds kRest(250);

}  // namespace

Status TcpDoor::Open(Fd listener, std::string token, int rank, int size) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return Status::Internal(std::string("epoll_create1 failed: ") + std::strerror(errno));
  }
  token_ = std::move(token);
  rank_ = rank;
  size_ = size;
  listener_ = std::move(listener);
  epoll_ = std::move(epoll);
  Watch(listener_.get(), EPOLLIN, EPOLL_CTL_ADD);
  return Status::Ok();
}

void TcpDoor::Close() {
  rests_ = false;
  strangers_.clear();
  listener_.Reset();
  epoll_.Reset();
}

void TcpDoor::Watch(int fd, uint32_t events, int operation) const {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  (void)epoll_ctl(epoll_.get(), operation, fd, &event);
}

std::vector<TcpDoor::Guest> TcpDoor::Take() {
  std::vector<Guest> guests;
  epoll_event events[kEvents];
  const int count = epoll_.valid() ? epoll_wait(epoll_.get(), events, kEvents, 0) : 0;
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listener_.get()) {
      Accept(&guests);
    } else if (const auto each = strangers_.find(fd); each != strangers_.end()) {
      (void)Advance(each, &guests);
    }
  }
  if (waits_for_time()) LookAtTheClock();
  return guests;
}

void TcpDoor::Accept(std::vector<Guest>* guests) {
  while (true) {
    Fd fd;
    if (!AcceptOne(listener_.get(), &fd)) {
      Watch(listener_.get(), 0, EPOLL_CTL_MOD);
      rests_ = true;
      rests_until_ = Clock::now() + kRest;
      return;
    }
    if (!fd.valid()) return;
    std::string nonce;
    if (!MakeNonce(&nonce).ok()) continue;
    SetSocketOptions(fd.get());
    const int number = fd.get();
    strangers_.emplace(number, Stranger{std::move(fd),
                                        {token_, rank_, size_, std::move(nonce)},
                                        Clock::now() + kForHandshake});
    Watch(number, EPOLLIN, EPOLL_CTL_ADD);
    CloseOldest(guests);
  }
}

bool TcpDoor::Advance(Strangers::iterator each, std::vector<Guest>* guests) {
  Stranger& stranger = each->second;
  bool refused = false;
  while (!refused && stranger.handshake.missing() > 0) {
    std::string bytes(stranger.handshake.missing(), '\0');
    const ssize_t got = recv(stranger.fd.get(), &bytes[0], bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    std::string reply;
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    refused = got <= 0 || !stranger.handshake.Feed(bytes, &reply).ok() ||
              // A new socket's buffer takes all bytes.
              send(stranger.fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
                  static_cast<ssize_t>(reply.size());
  }
  if (!refused) {
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.fd.get(), nullptr);
    const TcpCall& call = stranger.handshake.call();
    guests->push_back({std::move(stranger.fd), static_cast<int>(call.from),
                       static_cast<TcpTraffic>(call.traffic)});
  }
  strangers_.erase(each);
  return true;
}

// A peer whose connection is closed before it became a guest connects again.
void TcpDoor::CloseOldest(std::vector<Guest>* guests) {
  if (static_cast<int>(strangers_.size()) <= kTcpTraffics * size_ + kMoreStrangers) return;
  const auto oldest = std::min_element(
      strangers_.begin(), strangers_.end(),
      [](const auto& one, const auto& other) { return one.second.until < other.second.until; });
  if (!Advance(oldest, guests)) strangers_.erase(oldest);
}

void TcpDoor::LookAtTheClock() {
  const auto now = Clock::now();
  if (rests_ && now >= rests_until_) {
    rests_ = false;
    Watch(listener_.get(), EPOLLIN, EPOLL_CTL_MOD);
  }
  for (auto each = strangers_.begin(); each != strangers_.end();) {
    each = now >= each->second.until ? strangers_.erase(each) : std::next(each);
  }
}

}  // namespace tfhvd
