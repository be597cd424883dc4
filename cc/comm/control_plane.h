// ControlPlane: the means by which the ranks of a job agree: messages, a sleep that messages end,
// and votes. Every backend of the negotiation implements this interface.
#pragma once

#include "cc/comm/message_channel.h"
#include "cc/comm/sleeper.h"
#include "cc/comm/vote_board.h"

namespace tfhvd {

class ControlPlane : public MessageChannel, public Sleeper {
 public:
  // Returns the board for votes without messages; null, on all ranks alike, if there is none. Lives
  // as long as the control plane.
  virtual VoteBoard* votes() { return nullptr; }
};

}  // namespace tfhvd
