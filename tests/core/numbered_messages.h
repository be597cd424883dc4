// Messages between ranks, for tests of control planes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "cc/comm/control_plane.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

// The i-th message from one rank to another. Some are empty, and some are many times longer than
// what shared memory holds between two ranks.
inline std::string Letter(int from, int to, int i) {
  const size_t length = i % 10 == 9 ? 200000 : static_cast<size_t>(i * 37 % 3000);
  const std::string head =
      std::to_string(from) + ">" + std::to_string(to) + "#" + std::to_string(i);
  return i % 10 == 8 ? "" : head + std::string(length, static_cast<char>('a' + i % 26));
}

// Sleeps for a message, so long that a test would not end if a wake-up were lost.
inline Message Await(ControlPlane* plane, bool expecting) {
  while (true) {
    std::optional<Message> message;
    EXPECT_OK(plane->Receive(&message));
    if (message.has_value()) return std::move(*message);
    (void)plane->Flushed();
    plane->Wait(std::chrono::hours(1), expecting);
  }
}

// Until everything that was sent has left.
inline void Flush(ControlPlane* plane) {
  while (!plane->Flushed()) plane->Wait(std::chrono::hours(1), true);
}

}  // namespace testing
}  // namespace tfhvd
