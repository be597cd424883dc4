// LaterGeneration: ends the waits of a generation's members for each other as soon as a later
// generation exists; and the errors of such a change.
#pragma once

#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// The error of calls that fail because the members change.
inline Status MembersChange() {
  return Status::Aborted("the job continues without ranks that are lost");
}

// The error of all entries in a job that goes by commits (see ElasticJob). hvd.elastic.run
// recognizes it by the end of its text.
inline Status GoesOnFromCommit() {
  return Status::Aborted(
      "A rank is lost, and collectives on GPUs cannot be finished without it. With "
      "hvd.elastic.run (docs/elastic.md) the job continues from its last commit.");
}

// Called on the thread that may ask the membership, which outlives this object.
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
