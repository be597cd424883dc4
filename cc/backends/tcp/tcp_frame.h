// TcpFrame: the bytes on a connection of the TCP backend: a handshake (tcp_handshake.h), then
// frames, each with a header and its bytes. All hosts of a job have the same byte order (little
// endian), as the wheels require.
//
// A connection carries frames in one direction. In the other direction travels one byte at the end
// of the handshake, kTcpWelcome, and one at the end of the connection, kTcpBye.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace tfhvd {

// The purpose of a connection. Messages of the negotiation do not wait behind data.
enum class TcpTraffic : uint32_t { kControl, kData };
constexpr int kTcpTraffics = 2;

constexpr char kTcpWelcome = 'W';
constexpr char kTcpBye = 'B';
constexpr size_t kTcpTokenBytes = 32;

// The caller and the purpose of a connection: a part of the handshake.
struct TcpCall {
  uint32_t traffic = 0;  // TcpTraffic
  uint32_t from = 0;
  uint32_t to = 0;
};
static_assert(sizeof(TcpCall) == 12, "it has no gaps");

struct TcpHeader {
  uint64_t context = 0;  // of the frame's World
  uint32_t tag = 0;      // of the communicator and its channel, or of the control plane
  uint32_t bye = 0;      // 1: the last frame, without bytes
  uint64_t bytes = 0;
};
static_assert(sizeof(TcpHeader) == 24, "it has no gaps");

}  // namespace tfhvd
