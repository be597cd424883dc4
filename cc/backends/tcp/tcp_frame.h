// What travels over a connection of the TCP backend: a handshake (tcp_handshake.h), then frames,
// each a header and its bytes. All hosts of a job have the same byte order (little endian), as the
// wheels do.
//
// A connection carries frames one way. The other way goes one byte at the handshake's end, and one
// at the connection's: kTcpWelcome, kTcpBye.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace tfhvd {

// What a connection is for. Messages of the negotiation do not wait behind data.
enum class TcpTraffic : uint32_t { kControl, kData };
constexpr int kTcpTraffics = 2;

constexpr char kTcpWelcome = 'W';
constexpr char kTcpBye = 'B';
constexpr size_t kTcpTokenBytes = 32;

// Who connects, and what for: a part of the handshake.
struct TcpCall {
  uint32_t traffic = 0;  // TcpTraffic
  uint32_t from = 0;
  uint32_t to = 0;
};
static_assert(sizeof(TcpCall) == 12, "it has no gaps");

struct TcpHeader {
  uint64_t context = 0;  // of the World that the frame belongs to
  uint32_t tag = 0;      // of the communicator and its channel, or of the control plane
  uint32_t bye = 0;      // 1: the last frame, without bytes
  uint64_t bytes = 0;
};
static_assert(sizeof(TcpHeader) == 24, "it has no gaps");

}  // namespace tfhvd
