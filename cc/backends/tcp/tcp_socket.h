// Sockets of the TCP backend: their ends, and how they are opened. Nothing here blocks.
#pragma once

#include <string>
#include <vector>

#include "cc/base/fd.h"
#include "cc/base/status.h"

namespace tfhvd {

// "10.0.0.1:4711,[fe80::1]:4711" -> its parts.
std::vector<std::string> SplitAddresses(const std::string& text);

// Begins to connect to "host:port", where the host is a number of IPv4 or IPv6: names would have to
// be looked up. The socket is writable once it is connected, or has failed: see ConnectError.
Status BeginConnect(const std::string& address, Fd* fd);

// Why a socket has not been connected; 0 where it has.
int ConnectError(int fd);

// Takes a connection that has arrived; `fd` is invalid if there is none. Returns false if this
// process, or its host, is short of descriptors or memory.
bool AcceptOne(int listener, Fd* fd);

// Small messages leave at once, and a host that is cut off is noticed though nothing is sent.
void SetSocketOptions(int fd);

}  // namespace tfhvd
