// Jobs whose ranks are threads that meet over TCP, for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/backends/tcp/tcp_world.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

inline const std::string kToken(kTcpTokenBytes, 't');

// A socket that listens on this host, and its "127.0.0.1:port".
inline int ListenHere(std::string* address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), size), 0);
  EXPECT_EQ(listen(fd, 64), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
  *address = "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  return fd;
}

// What each rank of a job is told.
inline std::vector<TcpEndpoints> EndpointsHere(int size) {
  std::vector<TcpEndpoints> all_endpoints(static_cast<size_t>(size));
  std::vector<std::string> addresses(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) {
    TcpEndpoints& endpoints = all_endpoints[static_cast<size_t>(r)];
    endpoints.rank = r;
    endpoints.token = kToken;
    endpoints.listener = ListenHere(&addresses[static_cast<size_t>(r)]);
  }
  for (TcpEndpoints& endpoints : all_endpoints) endpoints.addresses = addresses;
  return all_endpoints;
}

// Runs `body(world)` on every rank of a fresh job.
template <typename Body>
void OnTcpWorlds(int size, const Body& body) {
  const std::vector<TcpEndpoints> all_endpoints = EndpointsHere(size);
  RunThreads(size, [&](int rank) {
    std::unique_ptr<World> world;
    ASSERT_OK(ConnectTcpWorld(Config(), all_endpoints[static_cast<size_t>(rank)], &world));
    body(world.get());
    EXPECT_OK(world->Close());
  });
}

}  // namespace testing
}  // namespace tfhvd
