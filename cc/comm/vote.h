// Vote: what ranks say of a round of a locked step (schedule/vote_rounds.h), one or
// several together, in a word that a rank can write at once.
//
// A vote of several is what all of them have said so far; Join is associative, and saying a thing
// twice changes nothing, so votes may be joined in any order and along several ways.
#pragma once

#include <cstdint>

namespace tfhvd {

enum class Vote : uint8_t {
  kNone,                  // not all have voted
  kAbortRequested,        // nor these, and one who has requests an abort
  kCommit,                // all have voted to commit
  kCommitAbortRequested,  // all have, and one of them would rather abort
  kAbort,                 // one has voted to abort
  kAbortLate,             // likewise, because its bucket did not fill
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

// Rounds count from 1, so that a word of 0 is a vote in none.
inline uint64_t VoteWord(uint64_t round, Vote vote) {
  return round << 3 | static_cast<uint64_t>(vote);
}
inline uint64_t RoundOf(uint64_t word) { return word >> 3; }

// What the word says of `round`. Whoever is further has voted to commit it: it could not have
// passed otherwise.
inline Vote VoteIn(uint64_t word, uint64_t round) {
  if (RoundOf(word) < round) return Vote::kNone;
  return RoundOf(word) > round ? Vote::kCommit : static_cast<Vote>(word & 7);
}

}  // namespace tfhvd
