// ControlPlane: small messages between the ranks of a job, for the negotiation.
//
// Messages from one rank to another arrive once and in order. One thread calls Send, Receive and
// Flushed (the engine's). SetWake is called before any other; its function may be called from any
// thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cc/base/status.h"

namespace tfhvd {

struct Message {
  int from = 0;
  std::string bytes;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Takes the message and returns; it leaves now or during later calls of Receive or Flushed.
  // REQUIRES: to != rank().
  virtual Status Send(int to, std::string bytes) = 0;

  // Takes the next message that has arrived, if there is one; never blocks.
  virtual Status Receive(std::optional<Message>* message) = 0;

  // Whether everything that was sent has left this rank, so that it may end.
  virtual bool Flushed() = 0;

  // Whether an arriving message calls the wake function. If not, the engine polls while it waits.
  virtual bool wakes() const = 0;
  virtual void SetWake(std::function<void()> wake) = 0;
};

}  // namespace tfhvd
