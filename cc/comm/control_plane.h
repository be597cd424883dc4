// ControlPlane: what the ranks of a job agree by: messages, sleep that messages end, and votes.
// The interface that every backend of the negotiation implements.
#pragma once

#include "cc/comm/message_channel.h"
#include "cc/comm/sleeper.h"
#include "cc/comm/vote_board.h"

namespace tfhvd {

class ControlPlane : public MessageChannel, public Sleeper {
 public:
  // What the ranks can vote on without messages; null where they cannot, on every rank alike. Lives
  // as long as the control plane.
  virtual VoteBoard* votes() { return nullptr; }
};

}  // namespace tfhvd
