// MessageChannel: small messages between the ranks of a job, for the negotiation.
//
// Messages from one rank to another arrive once and in order. One thread at a time (who runs the
// engine).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace tfhvd {

struct Message {
  int from = 0;
  std::string bytes;
};

// Whether a message says that the job is lost (flow/messages.h): it goes ahead of all others.
inline bool IsAlarm(const std::string& bytes) {
  return !bytes.empty() && static_cast<uint8_t>(bytes[0]) == kAlarmTag;
}

class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The rank that messages to and from rank 0 pass through: where it is missing, rank 0 seems to be
  // missing.
  virtual int route() const { return 0; }

  // Takes the message and returns; it leaves now or during later calls of Receive or Flushed.
  // REQUIRES: to != rank(); one of the two is rank 0, which coordinates, unless a World has opened
  // this channel.
  virtual Status Send(int to, std::string bytes) = 0;

  // Sends an alarm to every other rank that can be reached, without waiting for any. Ranks that it
  // reaches by way of others get it from them: whoever coordinates passes it on.
  virtual void Alarm(const std::string& bytes) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && (r == 0 || rank() == 0)) (void)Send(r, bytes);
    }
  }

  // Takes the next message that has arrived, if there is one; never blocks.
  virtual Status Receive(std::optional<Message>* message) = 0;

  // Lets what was sent move on; whether all of it has left this rank, so that it arrives though
  // this rank makes no further call: it may end, or take part in a collective.
  virtual bool Flushed() = 0;
};

}  // namespace tfhvd
