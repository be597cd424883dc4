// GenerationMonitor: ends the waits of a generation's members for each other as soon as a later
// generation exists; and the errors of such a change.
#pragma once

#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// The error of calls that fail because the members change.
inline Status MembersChange() {
  return Status::Aborted("the job continues without ranks that failed");
}

// The error of all entries in a job that goes by commits (see ElasticJob). hvd.elastic.run
// recognizes it by the end of its text.
inline Status ContinuesFromCommit() {
  return Status::Aborted(
      "A rank failed, and collectives on GPUs cannot be finished without it. With "
      "hvd.elastic.run (docs/elastic.md) the job continues from its last commit.");
}

// Called on the thread that may ask the membership, which outlives this object.
class GenerationMonitor : public WaitMonitor {
 public:
  GenerationMonitor(Membership* membership, int generation)
      : membership_(membership), generation_(generation) {}

  Status OnWait(const Wait&) override {
    return membership_->HasNext(generation_) ? MembersChange() : Status::Ok();
  }

 private:
  Membership* const membership_;  // Not owned.
  const int generation_;
};

}  // namespace tfhvd
