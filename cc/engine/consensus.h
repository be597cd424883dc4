// Consensus: how this rank comes to agree with all others on what runs next. By messages to the
// coordinator (Negotiator); or, while a step that repeats is locked, by votes on its buckets
// (StepRunner). It moves entries from one to the other where a step is locked or ends.
//
// Used by whoever runs the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/message_channel.h"
#include "cc/comm/topology.h"
#include "cc/comm/vote_board.h"
#include "cc/engine/step_runner.h"
#include "cc/flow/observer.h"
#include "cc/flow/process_set_table.h"
#include "cc/negotiate/negotiator.h"
#include "cc/queue/submission_queue.h"

namespace tfhvd {

class Consensus {
 public:
  using Outcome = Negotiator::Outcome;

  // As for Negotiator and StepRunner; `queue` is where `Take` is given from.
  Consensus(const Config& config, const Log& log, const Topology& topology,
            const ProcessSetTable* sets, MessageChannel* channel, VoteBoard* votes,
            SubmissionQueue* queue)
      : negotiator_(config, log, topology, sets, channel),
        runner_(config, log, topology, queue, votes) {}

  void SetObserver(Observer* observer) {
    negotiator_.SetObserver(observer);
    runner_.SetObserver(observer);
  }

  // Takes over what was drained of the queue.
  void Take(SubmissionQueue::Batch* batch, double now, Outcome* outcome);
  void Leave(const std::string& reason) { negotiator_.Leave(reason); }

  // Says what is new here, takes what has arrived, and votes. An error means that the job is lost.
  Status Step(double now, Outcome* outcome);

  // The next bucket of a locked step and no more: votes on it, and gives it out once all have voted
  // to commit. Whether it still waits for votes. REQUIRES: locked().
  bool StepOneBucket(double now, Outcome* outcome);
  // Takes what has arrived and keeps it for Step; whether Step has anything to do by now.
  Status Poll(double now, bool* anything) { return negotiator_.Poll(now, anything); }

  // See Negotiator.
  Status OnWait(const std::string& what, double waited, double now) {
    return negotiator_.OnWait(what, waited, now);
  }
  bool alarmed() const { return negotiator_.alarmed(); }
  bool left() const { return negotiator_.left(); }
  bool over() const { return negotiator_.over(); }

  // Everything that is in flight, for an engine that stops.
  std::vector<Entry> TakeAll();

  // Whether nothing that was taken waits for its decision.
  bool idle() const { return negotiator_.idle() && (!locked() || runner_.idle()); }
  bool expecting() const { return locked() ? runner_.voted() : negotiator_.expecting(); }
  // When Step has something to do though nothing comes.
  double wake_at(double now) const;

  bool locked() const { return runner_.active(); }
  // The bucket that an entry may complete, so that there is something to do then; else null.
  const LockedStep::Bucket* awaited() const {
    return locked() && !runner_.voted() ? &runner_.bucket() : nullptr;
  }

 private:
  void RunLocked(double now, Outcome* outcome);
  bool RunBucket(double now, Outcome* outcome);
  void Negotiate(std::vector<Entry>* entries, std::vector<EntryId>* cancelled, double now,
                 Outcome* outcome);
  Status CheckVotes(double now);

  Negotiator negotiator_;
  StepRunner runner_;
};

}  // namespace tfhvd
