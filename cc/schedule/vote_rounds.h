// VoteRounds: one rank's votes on the buckets of a locked step (flow/locked_step.h). All ranks
// repeat the same buckets, without announcements and agreements. In each round a rank casts one
// vote (comm/vote.h) once it has all tensors of the bucket, and the bucket runs if all ranks have
// voted to commit.
//
// Invariants:
//  1. A rank votes once in each round, to commit or to abort. A commit binds it until the round is
//     decided.
//  2. If all commit, every rank runs the bucket, and the next round begins. If some abort, no rank
//     runs it, and the step is unlocked on every rank, at the same round.
//  3. Rounds are counted through the whole job, so a word of an earlier step is never taken for a
//     vote.
//  4. A rank that has voted to commit and cannot wait longer (or has tensors of another kind)
//     requests an abort; a rank that has not voted in this round answers with abort. So the round
//     is decided soon, as long as every engine's thread runs.
//
// Used by the thread that runs the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/comm/vote.h"
#include "cc/comm/vote_board.h"

namespace tfhvd {

class VoteRounds {
 public:
  // What this rank wants: to continue, or to unlock the step. kAbortLate means that a bucket did
  // not fill, so that the step itself is in doubt.
  enum class Wish { kContinue, kAbort, kAbortLate };

  enum class Progress { kWait, kCommitted, kAborted };

  // `board` (not owned) is null if the ranks have none; then no step is ever locked.
  explicit VoteRounds(VoteBoard* board) : board_(board) {}

  // Records that a step is locked. REQUIRES: the step before is unlocked.
  void Begin() { aborted_late_ = false; }

  // Votes if a vote is due: on the bucket if it is `complete` here. Returns kCommitted if the
  // bucket runs, and the next call is about the next bucket; kAborted if the step is unlocked.
  Progress Step(Wish wish, bool complete);

  // After kAborted: returns whether some rank's bucket did not fill.
  bool aborted_late() const { return aborted_late_; }

  // Returns whether this rank has voted and waits for others.
  bool voted() const { return voted_; }
  // Returns whether votes of others are missing. REQUIRES: voted().
  bool lacks_votes() const { return !AllCommit() && !SomeAbort(); }
  // Returns the ranks that have not voted, as far as this rank knows: of another host it may know
  // only that some are missing.
  std::vector<int> RanksWithoutVote() const;
  // Returns whether this rank is the first of those that see the same words and have voted.
  // REQUIRES: voted().
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
