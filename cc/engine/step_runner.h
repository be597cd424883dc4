// StepRunner: runs a locked step. It takes each bucket from the queue once it is complete, votes on
// it with the other ranks, and gives it out where all have voted to commit. Where the program
// deviates from the step, or a bucket does not fill, it votes to abort, and gives everything back.
//
// Whoever runs the engine may call it: the engine's thread, or one that submits (for one bucket).
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
    kWait,   // for entries, or for other ranks' votes
    kRan,    // a bucket was given out
    kEnded,  // the step is unlocked: TakeRest
  };

  // What is left of a step that has ended.
  struct Rest {
    int64_t rounds = 0;              // that it ran for
    bool late = false;               // it ended because a bucket did not fill
    double step_seconds = 0.0;       // how long its steps took; 0: too few ran
    std::vector<Entry> entries;      // in order of submission
    std::vector<EntryId> cancelled;  // of these or of others
  };

  // `queue` and `votes` (null: the ranks have none, and nothing is ever locked) must outlive this.
  StepRunner(const Config& config, const Log& log, const Topology& topology, SubmissionQueue* queue,
             VoteBoard* votes)
      : config_(config), log_(log), topology_(topology), queue_(queue), votes_(votes) {}

  // Who is told when ranks are ready; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // `pending`: entries that are in flight, in order of submission. REQUIRES: not active.
  void Begin(std::shared_ptr<const LockedStep> step, std::vector<Entry> pending, double now);
  bool active() const { return step_ != nullptr; }

  // What is not part of the step; the step ends with it. Both REQUIRE: active.
  void Deviate(Entry&& entry) { foreign_.push_back(std::move(entry)); }
  void Cancel(EntryId id) { cancelled_.push_back(id); }
  bool cancels() const { return !cancelled_.empty(); }

  // Votes on the next bucket, and gives it out once all have voted to commit; the step ends unless
  // it `may_go_on`. REQUIRES: active.
  Progress Run(double now, bool may_go_on, std::vector<Agreed>* bucket);
  // REQUIRES: Run has returned kEnded, and nothing was called since.
  Rest TakeRest();

  // Everything that is in flight, for an engine that stops.
  void TakeAll(std::vector<Entry>* entries);

  // Entries came while no step was locked; `first`: none was pending.
  void EntriesCame(double now, bool first) { gaps_.Came(now, first); }

  // Whether it has voted, and waits for others' votes. REQUIRES of those below: active.
  bool voted() const { return votes_.voted(); }
  // Whether it has nothing in flight.
  bool idle() const;
  // The bucket that is voted on next, or now.
  const LockedStep::Bucket& bucket() const { return step_->buckets[current_]; }
  const FusionLimits& fusion() const { return step_->fusion; }
  // When Run has something to do though nothing comes.
  double wake_at(double now) const;

  // Whether it waits for ranks whose votes are missing, and is to say so; for how long by now, in
  // seconds, and for what.
  bool missing_votes() const {
    return config_.stall_check && votes_.voted() && votes_.lacks_votes();
  }
  double waited(double now) const { return now - voted_at_; }
  std::string doing() const;
  // Says who they are. An error means that the job is lost.
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
  size_t current_ = 0;          // bucket of the step
  int64_t rounds_ = 0;          // that the step has run for
  std::vector<Agreed> held_;    // the current bucket, while it is voted on
  std::vector<Entry> foreign_;  // in order of submission
  std::vector<EntryId> cancelled_;
  Gaps gaps_;
  StepPeriods periods_;
  SubmissionQueue::Collected collected_;  // when Look last looked
  double voted_at_ = 0.0;
  int waits_for_ = kSeveralRanks;  // since it has voted: the one rank that was seen to be missing
  bool votes_reported_ = false;    // that some are missing
  std::vector<bool> observed_;     // by rank: its vote in the present round; empty: none
};

}  // namespace tfhvd
