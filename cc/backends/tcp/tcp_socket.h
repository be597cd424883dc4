// TcpSocket: opens and configures the sockets of the TCP backend. No function blocks.
#pragma once

#include <string>
#include <vector>

#include "cc/base/fd.h"
#include "cc/base/status.h"

namespace tfhvd {

// Splits "10.0.0.1:4711,[fe80::1]:4711" into its addresses.
std::vector<std::string> SplitAddresses(const std::string& text);

// Begins to connect to "host:port", where the host is a numeric IPv4 or IPv6 address: names would
// need a lookup. The socket is writable when it is connected, or has failed: see ConnectError.
Status BeginConnect(const std::string& address, Fd* fd);

// Returns the error of a failed connect; 0 if the socket is connected.
int ConnectError(int fd);

// Accepts a connection; `fd` is invalid if there is none. Returns false if this process, or its
// host, is short of descriptors or memory.
bool AcceptOne(int listener, Fd* fd);

// Makes small messages leave at once, and an unreachable host be noticed even if nothing is sent.
void SetSocketOptions(int fd);

}  // namespace tfhvd
