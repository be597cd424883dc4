// Whether the gradients of a step are finite: what a rank finds, and what the ranks say together.
//
// A rank's vote is kVoteValues numbers that are added up, averaged, or averaged by weights over the
// ranks, like the gradients that it goes with. What it says are relations between these numbers,
// which are the same in each case.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/finite.h"
#include "cc/base/types.h"

namespace tfhvd {

// What a rank finds in its own gradients, taken in the order of the backward pass.
struct FoundNotFinite {
  int64_t first = -1;     // the first gradient that is not finite; -1: all are
  int64_t gradients = 0;  // how many are not
  int64_t nans = -1;      // in the first; -1: not counted
  int64_t infinities = -1;
  int64_t values = 0;  // in the first
};
constexpr int kFoundValues = 5;

// The values of a vote: 1 where the gradients are finite; and where they are not, 1, the two digits
// of the rank (to the base kDigit) each with its square, and the first of those gradients. Zeros
// otherwise. Squares tell one rank from several; those of digits are exact enough in a float.
constexpr int kVoteFinite = 0;
constexpr int kVoteOther = 1;
constexpr int kVoteLow = 2;
constexpr int kVoteLowSquare = 3;
constexpr int kVoteHigh = 4;
constexpr int kVoteHighSquare = 5;
constexpr int kVoteFirst = 6;
constexpr int kVoteValues = 7;
using Votes = std::array<float, kVoteValues>;

constexpr int kDigit = 64;

inline Votes VoteOf(const FoundNotFinite& found, int rank) {
  if (found.first < 0) return {1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  const auto low = static_cast<float>(rank % kDigit);
  const auto high = static_cast<float>(rank / kDigit);
  return {0.0f, 1.0f, low, low * low, high, high * high, static_cast<float>(found.first)};
}

// Adds a gradient to what is found in those before it: after a look at its first `most` values (0:
// at all of them). `number`: which of the variables it is of.
inline void Look(const void* data, DType dtype, int64_t values, int64_t most, int64_t number,
                 FoundNotFinite* found) {
  const auto looked_at = static_cast<size_t>(most > 0 ? std::min(most, values) : values);
  if (AllFinite(data, dtype, looked_at) || found->gradients++ > 0) return;
  const NotFinite counts = CountNotFinite(data, dtype, static_cast<size_t>(values));
  *found = {number, 1, counts.nans, counts.infinities, values};
}

// As the values of a tensor.
inline FoundNotFinite ToFound(const int64_t* values) {
  return {values[0], values[1], values[2], values[3], values[4]};
}
inline void ToValues(const FoundNotFinite& found, int64_t* values) {
  values[0] = found.first;
  values[1] = found.gradients;
  values[2] = found.nans;
  values[3] = found.infinities;
  values[4] = found.values;
}

// The gradients of every step that are reduced together.
struct SharedGradients {
  std::string reductions;           // what the names of these begin with
  std::vector<std::string> labels;  // the variables, by the numbers of the gradients
  bool left_out = false;            // ranks whose gradients are not finite have no part
  int32_t process_set = 0;          // the ranks that reduce them
};

}  // namespace tfhvd
