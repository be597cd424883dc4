// LaterGeneration: ends the waits of members of a generation for each other once there is a later
// one.
#pragma once

#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// What fails because the members change.
inline Status MembersChange() {
  return Status::Aborted("the job goes on without ranks that are lost");
}

// Asked on the thread that may ask the membership, which outlives it.
class LaterGeneration : public WaitMonitor {
 public:
  LaterGeneration(Membership* membership, int generation)
      : membership_(membership), generation_(generation) {}

  Status OnWait(const Wait&) override {
    return membership_->HasNext(generation_) ? MembersChange() : Status::Ok();
  }

 private:
  Membership* const membership_;  // Not owned.
  const int generation_;
};

}  // namespace tfhvd
