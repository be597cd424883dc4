// VoteRounds: one rank's votes on the buckets of a locked step (flow/locked_step.h). All ranks run
// the same buckets round and round, without announcements and agreements: for each round a rank
// casts one vote (comm/vote.h), once it has all of the bucket's tensors, and the bucket runs where
// all have voted to commit.
//
// Invariants:
//  1. A rank votes once in each round, to commit or to abort. A commit binds it until the round is
//     decided.
//  2. Where all commit every rank runs the bucket, and the next round begins. Where some abort no
//     rank runs it, and the step is unlocked on every rank, at the same round.
//  3. Rounds are counted through the whole job, so a word of an earlier step is never taken for a
//     vote.
//  4. Whoever has voted to commit and can wait no longer (or has tensors of another kind) requests
//     an abort; a rank that has not voted in this round answers with abort. So the round is decided
//     soon, as long as every engine's thread runs.
//
// Used by who runs the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/comm/vote.h"
#include "cc/comm/vote_board.h"

namespace tfhvd {

class VoteRounds {
 public:
  // What this rank wants: to go on, or that the step is unlocked; kAbortLate says that a bucket did
  // not fill, so that the step itself is in doubt.
  enum class Wish { kContinue, kAbort, kAbortLate };

  enum class Progress { kWait, kCommitted, kAborted };

  // `board` (not owned) may be null where the ranks have none; then nothing is ever locked.
  explicit VoteRounds(VoteBoard* board) : board_(board) {}

  // A step is locked. REQUIRES: the last one is not.
  void Begin() { aborted_late_ = false; }

  // Votes where there is something to vote on: on the bucket if it is `complete` here. kCommitted:
  // it runs, and the next call is about the next bucket. kAborted: the step is unlocked.
  Progress Step(Wish wish, bool complete);

  // After kAborted: whether some rank's bucket did not fill.
  bool aborted_late() const { return aborted_late_; }

  // Whether this rank has voted and waits for others.
  bool voted() const { return voted_; }
  // Whether it lacks others' votes. REQUIRES: voted().
  bool lacks_votes() const { return !AllCommit() && !SomeAbort(); }
  // Ranks that have not voted, as far as this rank knows: on another host, that there are such may
  // be all.
  std::vector<int> RanksWithoutVote() const;
  // Whether, of the ranks that see the same words and have voted, this is the first. REQUIRES:
  // voted().
  bool FirstToWait() const;

 private:
  Vote VoteOf(int index) const { return VoteIn(board_->Word(index), round_); }
  bool AllCommit() const;
  bool SomeAbort() const;
  void Cast(Vote vote) { board_->Cast(VoteWord(round_, vote)); }
  Progress Abort();

  VoteBoard* const board_;  // Not owned.

  bool voted_ = false;
  bool abort_requested_ = false;  // after a commit
  bool aborted_late_ = false;
  uint64_t round_ = 1;  // of the whole job: invariant 3
};

}  // namespace tfhvd
