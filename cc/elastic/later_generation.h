// LaterGeneration: ends the waits of members of a generation for each other once there is a later
// one; and what fails then.
#pragma once

#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// What fails because the members change.
inline Status MembersChange() {
  return Status::Aborted("the job continues without ranks that are lost");
}

// What all fails with in a job that goes by commits (ElasticJob). hvd.elastic.run knows it by how
// it ends.
inline Status GoesOnFromCommit() {
  return Status::Aborted(
      "A rank is lost, and collectives on GPUs cannot be finished without it. With "
      "hvd.elastic.run (docs/elastic.md) the job continues from its last commit.");
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
