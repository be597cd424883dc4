// Vote: what ranks say of a turn of a locked schedule (negotiate/locked_schedule.h), one or several
// together, in a word that a rank can write at once.
//
// A vote of several is what all of them have said so far; Join is associative, and saying a thing
// twice changes nothing, so votes may be joined in any order and along several ways.
#pragma once

#include <cstdint>

namespace tfhvd {

enum class Vote : uint8_t {
  kNone,      // not all have voted
  kAsking,    // nor these, and one who has asks the others to end
  kGo,        // all have voted go
  kGoAsking,  // all have, and one of them would rather have ended
  kEnd,       // one has voted end
  kLate,      // likewise, because its bucket did not fill
};

inline bool IsGo(Vote vote) { return vote == Vote::kGo || vote == Vote::kGoAsking; }
inline bool IsEnd(Vote vote) { return vote == Vote::kEnd || vote == Vote::kLate; }
inline bool Asks(Vote vote) { return vote == Vote::kAsking || vote == Vote::kGoAsking; }

inline Vote Join(Vote a, Vote b) {
  if (IsEnd(a) || IsEnd(b)) return a > b ? a : b;
  const bool asks = Asks(a) || Asks(b);
  if (IsGo(a) && IsGo(b)) return asks ? Vote::kGoAsking : Vote::kGo;
  return asks ? Vote::kAsking : Vote::kNone;
}

// Turns count from 1, so that a word of 0 is a vote in none.
inline uint64_t VoteWord(uint64_t turn, Vote vote) {
  return turn << 3 | static_cast<uint64_t>(vote);
}
inline uint64_t TurnOf(uint64_t word) { return word >> 3; }

// What the word says of `turn`. Whoever is further has voted go in it: it could not have passed
// otherwise.
inline Vote VoteIn(uint64_t word, uint64_t turn) {
  if (TurnOf(word) < turn) return Vote::kNone;
  return TurnOf(word) > turn ? Vote::kGo : static_cast<Vote>(word & 7);
}

}  // namespace tfhvd
