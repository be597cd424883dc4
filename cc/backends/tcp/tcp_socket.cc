#include "cc/backends/tcp/tcp_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

namespace tfhvd {
namespace {

// Seconds until a host that sends nothing is probed, between probes, and the number of failed
// probes: it counts as failed after half a minute.
constexpr int kAskAfter = 15;
constexpr int kAskEvery = 5;
constexpr int kAsked = 3;

void Set(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

std::vector<std::string> SplitAddresses(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Status BeginConnect(const std::string& address, Fd* fd) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return Status::InvalidArgument("'" + address + "' is no address: host:port is expected");
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &wanted, &found);
  if (error != 0) {
    return Status::InvalidArgument("'" + address + "' is no address: " + gai_strerror(error));
  }
  Fd opened(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int failed = opened.valid() ? 0 : errno;
  if (failed == 0 && connect(opened.get(), found->ai_addr, found->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    failed = errno;
  }
  freeaddrinfo(found);
  if (failed != 0) return Status::Unavailable(address + ": " + std::strerror(failed));
  SetSocketOptions(opened.get());
  *fd = std::move(opened);
  return Status::Ok();
}

int ConnectError(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool AcceptOne(int listener, Fd* fd) {
  *fd = Fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd->valid()) return true;
  return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
}

void SetSocketOptions(int fd) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kAskAfter);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kAskEvery);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kAsked);
}

}  // namespace tfhvd
