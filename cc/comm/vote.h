// Vote: the vote of one rank, or of several together, in a round of a locked step
// (schedule/vote_rounds.h), in a word that a rank can write at once.
//
// A joint vote combines the votes so far. Join is associative, and a repeated vote changes nothing,
// so votes may be joined in any order and over several paths.
#pragma once

#include <cstdint>

namespace tfhvd {

enum class Vote : uint8_t {
  kNone,                  // not all have voted
  kAbortRequested,        // not all have voted, and one that has requests an abort
  kCommit,                // all have voted to commit
  kCommitAbortRequested,  // all have voted to commit, and one of them requests an abort
  kAbort,                 // one has voted to abort
  kAbortLate,             // one has voted to abort, because its bucket did not fill
};

inline bool IsCommit(Vote vote) {
  return vote == Vote::kCommit || vote == Vote::kCommitAbortRequested;
}
inline bool IsAbort(Vote vote) { return vote == Vote::kAbort || vote == Vote::kAbortLate; }
inline bool RequestsAbort(Vote vote) {
  return vote == Vote::kAbortRequested || vote == Vote::kCommitAbortRequested;
}

inline Vote Join(Vote a, Vote b) {
  if (IsAbort(a) || IsAbort(b)) return a > b ? a : b;
  const bool abort_requested = RequestsAbort(a) || RequestsAbort(b);
  if (IsCommit(a) && IsCommit(b))
    return abort_requested ? Vote::kCommitAbortRequested : Vote::kCommit;
  return abort_requested ? Vote::kAbortRequested : Vote::kNone;
}

// Rounds count from 1, so that a word of 0 is no vote in any round.
inline uint64_t VoteWord(uint64_t round, Vote vote) {
  return round << 3 | static_cast<uint64_t>(vote);
}
inline uint64_t RoundOf(uint64_t word) { return word >> 3; }

// Returns the vote for `round` in the word. A rank in a later round has voted to commit this one,
// because otherwise it could not have passed it.
inline Vote VoteIn(uint64_t word, uint64_t round) {
  if (RoundOf(word) < round) return Vote::kNone;
  return RoundOf(word) > round ? Vote::kCommit : static_cast<Vote>(word & 7);
}

}  // namespace tfhvd
