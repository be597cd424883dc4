// LockedSchedule: one rank's part in a step that repeats. All ranks hold the same list of buckets
// of collectives and run them round and round, without announcements and agreements: for each round
// a rank casts one vote (comm/vote.h), once it has all of the bucket's tensors, and the bucket runs
// where all have voted to commit.
//
// Invariants:
//  1. A rank votes once in each round, to commit or to abort. A commit binds it until the round is
//     decided.
//  2. Where all commit every rank runs the bucket, and the next round begins. Where some abort no
//     rank runs it, and the schedule is over on every rank, at the same round.
//  3. Rounds are counted through the whole job, so a word of an earlier schedule is never taken for
//     a vote.
//  4. Whoever has voted to commit and can wait no longer (or has tensors of another kind) requests
//     an abort; a rank that has not voted in this round answers with abort. So the round is decided
//     soon, as long as every engine's thread runs.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/comm/vote.h"
#include "cc/comm/vote_board.h"
#include "cc/flow/messages.h"

namespace tfhvd {

class LockedSchedule {
 public:
  // What this rank wants: to go on, or that the schedule ends; kAbortLate says that a bucket did
  // not fill, so that the schedule itself is in doubt.
  enum class Wish { kContinue, kAbort, kAbortLate };

  enum class Progress { kWait, kRun, kOver };

  // `board` (not owned) may be null where the ranks have none; then Begin is never called.
  explicit LockedSchedule(VoteBoard* board) : board_(board) {}

  bool active() const { return active_; }

  // REQUIRES: not active; `buckets` is equal on every rank, has no empty bucket, and names no
  // collective twice.
  void Begin(std::vector<Bucket> buckets);

  // Where the schedule has collective `id`, counted through all its buckets; -1: nowhere.
  int IndexOf(CacheId id) const {
    const auto index = indices_.find(id);
    return index == indices_.end() ? -1 : index->second;
  }

  // This rank has the tensors of the collective at `index`. REQUIRES: active; it was not ready.
  void Ready(int index);

  // Whether it has.
  bool Holds(int index) const { return members_[index].ready; }

  // They are taken back; false where this rank has voted for their bucket. REQUIRES: it was ready.
  bool TakeBack(int index);

  // Votes where there is something to vote on. kRun: run due() now, and call again. kOver: the
  // schedule has ended. Unless it `may_commit`, it votes for no further bucket.
  Progress Step(Wish wish, bool may_commit = true);

  // Of the last one that was begun, and how many have been.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int64_t begun() const { return begun_; }

  const Bucket& due() const { return buckets_[due_]; }
  int first_due() const { return first_[due_]; }   // the index of its first collective
  bool ended_late() const { return ended_late_; }  // after kOver
  int64_t rounds() const { return rounds_; }       // that this schedule has run

  // Whether this rank has voted and waits for others.
  bool voted() const { return voted_; }
  // Whether it lacks others' votes. REQUIRES: voted().
  bool lacks_votes() const { return !AllCommit() && !SomeAbort(); }
  // How many collectives the current bucket still lacks here.
  int missing() const { return active_ ? missing_[current_] : 0; }
  // The bucket that is voted on, and which one of the step it is.
  const Bucket& current() const { return buckets_[current_]; }
  size_t current_index() const { return current_; }
  // Ranks that have not voted on it, as far as this rank knows: on another host, that there are
  // such may be all.
  std::vector<int> RanksWithoutVote() const;
  // Whether, of the ranks that see the same words and have voted, this is the first. REQUIRES:
  // voted().
  bool FirstToWait() const;

 private:
  struct Member {
    int bucket = 0;
    bool ready = false;
  };

  Vote VoteOf(int index) const { return VoteIn(board_->Word(index), round_); }
  bool AllCommit() const;
  bool SomeAbort() const;
  void Cast(Vote vote) { board_->Cast(VoteWord(round_, vote)); }
  Progress Abort();

  VoteBoard* const board_;  // Not owned.

  bool active_ = false;
  std::vector<Bucket> buckets_;
  std::vector<int> first_;       // by bucket: the index of its first collective
  std::vector<int> missing_;     // by bucket
  std::vector<Member> members_;  // by index
  std::unordered_map<CacheId, int> indices_;
  size_t current_ = 0;
  size_t due_ = 0;
  bool voted_ = false;
  bool abort_requested_ = false;  // after a commit
  bool ended_late_ = false;
  int64_t rounds_ = 0;
  int64_t begun_ = 0;
  uint64_t round_ = 1;  // of the whole job: invariant 3
};

}  // namespace tfhvd
