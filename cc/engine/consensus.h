// Consensus: how this rank agrees with all others on what runs next: by messages to the coordinator
// (Negotiator), or, while a repeating step is locked, by votes on its buckets (StepRunner). It
// moves entries from one to the other when a step is locked or ends.
//
// Used by the thread that runs the engine.
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

  // Arguments as for Negotiator and StepRunner; `queue` is the source of the batches that Take
  // gets.
  Consensus(const Config& config, const Log& log, const Topology& topology,
            const ProcessSetTable* sets, MessageChannel* channel, VoteBoard* votes,
            SubmissionQueue* queue)
      : negotiator_(config, log, topology, sets, channel),
        runner_(config, log, topology, queue, votes) {}

  void SetObserver(Observer* observer) {
    negotiator_.SetObserver(observer);
    runner_.SetObserver(observer);
  }

  // Takes over a batch that was drained from the queue.
  void Take(SubmissionQueue::Batch* batch, double now, Outcome* outcome);
  void Leave(const std::string& reason) { negotiator_.Leave(reason); }

  // Announces new entries, reads the messages that have arrived, and votes. An error means that the
  // job has failed.
  Status Step(double now, Outcome* outcome);

  // Votes on the next bucket of a locked step, and returns it in `outcome` once all ranks have
  // voted to commit. Does nothing else. Returns whether it still waits for votes. REQUIRES:
  // locked().
  bool StepOneBucket(double now, Outcome* outcome);
  // Reads the messages that have arrived and keeps them for Step; reports whether Step has work.
  Status Poll(double now, bool* anything) { return negotiator_.Poll(now, anything); }

  // See Negotiator.
  Status OnWait(const std::string& what, double waited, double now) {
    return negotiator_.OnWait(what, waited, now);
  }
  bool alarmed() const { return negotiator_.alarmed(); }
  bool left() const { return negotiator_.left(); }
  bool over() const { return negotiator_.over(); }

  // Removes and returns all entries in flight, for an engine that stops.
  std::vector<Entry> TakeAll();

  // Returns whether no entry waits for its decision.
  bool idle() const { return negotiator_.idle() && (!locked() || runner_.idle()); }
  bool expecting() const { return locked() ? runner_.voted() : negotiator_.expecting(); }
  // Returns the time when Step has work even if no message or entry arrives.
  double wake_at(double now) const;

  bool locked() const { return runner_.active(); }
  // Returns the bucket whose last entry would give Step work; null if there is none.
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
