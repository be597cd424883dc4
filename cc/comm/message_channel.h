// MessageChannel: small messages between the ranks of a job, for the negotiation.
//
// Messages from one rank to another arrive once and in order. One thread at a time (the one that
// runs the engine).
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

// Returns whether a message reports that the job has failed (flow/messages.h): it overtakes all
// others.
inline bool IsAlarm(const std::string& bytes) {
  return !bytes.empty() && static_cast<uint8_t>(bytes[0]) == kAlarmTag;
}

class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns the rank through which messages to and from rank 0 pass: if it does not respond, rank 0
  // seems missing.
  virtual int route() const { return 0; }

  // Takes the message and returns; sends it now or during later calls of Receive or Flushed.
  // REQUIRES: to != rank(); one of the two is rank 0, the coordinator, unless a World has opened
  // this channel.
  virtual Status Send(int to, std::string bytes) = 0;

  // Sends an alarm to every other reachable rank, without waiting for any. Ranks that are reached
  // through others get it from them: the coordinator passes it on.
  virtual void Alarm(const std::string& bytes) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && (r == 0 || rank() == 0)) (void)Send(r, bytes);
    }
  }

  // Returns the next message that has arrived, if there is one. Never blocks.
  virtual Status Receive(std::optional<Message>* message) = 0;

  // Makes progress with sent messages; returns whether all of them have left this rank, so that
  // they arrive even if this rank makes no further call: it may end, or enter a collective.
  virtual bool Flushed() = 0;
};

}  // namespace tfhvd
