// StepRunner: runs a locked step. It takes each complete bucket from the queue, votes on it with
// the other ranks, and returns it if all have voted to commit. If the program deviates from the
// step, or a bucket does not fill, it votes to abort and gives all entries back.
//
// Called by the thread that runs the engine: the engine's thread, or (for one bucket) a submitting
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/comm/topology.h"
#include "cc/comm/vote_board.h"
#include "cc/flow/locked_step.h"
#include "cc/flow/observer.h"
#include "cc/flow/plan.h"
#include "cc/queue/submission_queue.h"
#include "cc/schedule/gaps.h"
#include "cc/schedule/step_periods.h"
#include "cc/schedule/vote_rounds.h"

namespace tfhvd {

class StepRunner {
 public:
  enum class Progress {
    kWait,   // waits for entries, or for votes of other ranks
    kRan,    // returned a bucket
    kEnded,  // the step is unlocked: TakeRest
  };

  // The remains of a step that has ended.
  struct Rest {
    int64_t rounds = 0;              // rounds that the step ran for
    bool late = false;               // it ended because a bucket did not fill
    double step_seconds = 0.0;       // time per step; 0: too few steps ran
    std::vector<Entry> entries;      // in order of submission
    std::vector<EntryId> cancelled;  // these entries or others
  };

  // `queue` and `votes` must outlive this object. `votes` is null if the ranks have none; then no
  // step is ever locked.
  StepRunner(const Config& config, const Log& log, const Topology& topology, SubmissionQueue* queue,
             VoteBoard* votes)
      : config_(config), log_(log), topology_(topology), queue_(queue), votes_(votes) {}

  // The observer learns when ranks are ready; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Starts a step. `pending`: the entries in flight, in order of submission. REQUIRES: not active.
  void Begin(std::shared_ptr<const LockedStep> step, std::vector<Entry> pending, double now);
  bool active() const { return step_ != nullptr; }

  // Takes an entry or a cancellation that is not part of the step, and so ends it. REQUIRES:
  // active.
  void Deviate(Entry&& entry) { foreign_.push_back(std::move(entry)); }
  void Cancel(EntryId id) { cancelled_.push_back(id); }
  bool cancels() const { return !cancelled_.empty(); }

  // Votes on the next bucket, and returns it once all ranks have voted to commit. Ends the step if
  // not `may_go_on`. REQUIRES: active.
  Progress Run(double now, bool may_go_on, std::vector<Agreed>* bucket);
  // Returns what remains of the step. REQUIRES: Run has returned kEnded, and no other call
  // followed.
  Rest TakeRest();

  // Returns all entries in flight, for an engine that stops.
  void TakeAll(std::vector<Entry>* entries);

  // Records that entries arrived while no step was locked; `first`: none was pending.
  void EntriesCame(double now, bool first) { gaps_.Came(now, first); }

  // Returns whether this rank has voted and waits for other votes. REQUIRES, here and below:
  // active.
  bool voted() const { return votes_.voted(); }
  // Returns whether no entry is in flight.
  bool idle() const;
  // Returns the bucket of the present or next vote.
  const LockedStep::Bucket& bucket() const { return step_->buckets[current_]; }
  const FusionLimits& fusion() const { return step_->fusion; }
  // Returns the time when Run has work even if no entry or vote arrives.
  double wake_at(double now) const;

  // missing_votes returns whether this rank waits for votes of other ranks and must report it;
  // waited, for how many seconds; doing, for which collective.
  bool missing_votes() const {
    return config_.stall_check && votes_.voted() && votes_.lacks_votes();
  }
  double waited(double now) const { return now - voted_at_; }
  std::string doing() const;
  // Reports the ranks without votes. An error means that the job has failed.
  Status CheckVotes(double now);

 private:
  void Look(double now);
  bool WantsToEnd(double now, bool may_go_on, UnlockReason* why) const;
  VoteRounds::Wish WishAt(double now, bool may_go_on, UnlockReason* why) const;
  int OneMissing() const;
  void ObserveWait();
  void ObserveEnd(double waited, VoteRounds::Progress progress, UnlockReason why);
  void ObserveVotes(bool decided);

  const Config config_;
  const Log& log_;
  const Topology& topology_;
  SubmissionQueue* const queue_;  // Not owned.
  VoteRounds votes_;
  Observer* observer_ = nullptr;  // Not owned.

  std::shared_ptr<const LockedStep> step_;
  size_t current_ = 0;          // index of the bucket in the step
  int64_t rounds_ = 0;          // rounds that the step has run for
  std::vector<Agreed> held_;    // the current bucket during the vote
  std::vector<Entry> foreign_;  // in order of submission
  std::vector<EntryId> cancelled_;
  Gaps gaps_;
  StepPeriods periods_;
  SubmissionQueue::Collected collected_;  // as of the last Look
  double voted_at_ = 0.0;
  int waits_for_ = kSeveralRanks;  // since this rank voted: the only rank without a vote
  bool votes_reported_ = false;    // whether missing votes were reported
  std::vector<bool> observed_;     // by rank: whether its vote of this round was observed
};

}  // namespace tfhvd
