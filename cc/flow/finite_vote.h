// Whether the gradients of a step are finite, and in proportion: what a rank finds, and what the
// ranks say together.
//
// A rank's vote is kVoteValues numbers that are added up, averaged, or averaged by weights over the
// ranks, like the gradients that it goes with. What it says are relations between these numbers,
// which are the same in each case.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/types.h"
#include "cc/numeric/finite.h"
#include "cc/numeric/measure.h"

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

// How large a gradient is: powers of two.
constexpr float kNoSize = -std::numeric_limits<float>::infinity();
struct GradientSize {
  int64_t layer = 0;  // those of one layer have the same
  float norm = kNoSize;
  float largest = kNoSize;  // of the absolute values; kNoSize: none is above 0, or some not finite
  bool whole = true;        // whether all values were looked at
};

// What a rank thinks of its own gradients' sizes (observe/outliers.h).
struct Suspicion {
  int64_t suspect = -1;  // the gradient that is far above its like, it alone; -1: none
  float above = 0.0f;    // by how much, as a power of two; without a suspect, the most of any
};
constexpr float kUnknown = 1024.0f;  // above all

// So many times as far as anything else a suspect is above its like.
constexpr float kAlone = 8.0f;

// GradientSizes: who remembers how large a rank's gradients have been (observe/size_watch.h).
class GradientSizes {
 public:
  using Numbered = std::vector<std::pair<int64_t, GradientSize>>;

  virtual ~GradientSizes() = default;

  // How many values of each gradient to look at; 0: all. `name`: whose gradients they are.
  virtual int64_t Most(const std::string& name) = 0;

  // Takes some gradients of a step, by their numbers, and how long the look at them took.
  virtual void Add(const std::string& name, const Numbered& some,
                   std::chrono::nanoseconds took) = 0;

  // What is to be thought of a step all of which is there.
  virtual Suspicion Judge(const std::string& name) = 0;
};

// The values of a vote: 1 where the gradients are finite; and where they are not, an accusation.
// Then by how much a gradient is above its like, where that is unusual; or where one is suspect, an
// accusation and by how much. Zeros otherwise.
//
// An accusation is 1, the two digits of the rank (to the base kDigit) each with its square, and the
// gradient. Squares tell one rank from several; those of digits are exact enough in a float.
constexpr int kVoteFinite = 0;
constexpr int kVoteOther = 1;
constexpr int kVoteUnusual = 7;
constexpr int kVoteSuspect = 8;
constexpr int kVoteAbove = 14;
constexpr int kVoteValues = 15;
using Votes = std::array<float, kVoteValues>;

constexpr int kDigit = 64;

inline void Accuse(int64_t gradient, int rank, float* accusation) {
  const auto low = static_cast<float>(rank % kDigit);
  const auto high = static_cast<float>(rank / kDigit);
  const float values[] = {1.0f, low, low * low, high, high * high, static_cast<float>(gradient)};
  std::copy(std::begin(values), std::end(values), accusation);
}

inline Votes VoteOf(const FoundNotFinite& found, int rank, const Suspicion& sizes = {}) {
  Votes votes{};
  votes[kVoteFinite] = found.first < 0 ? 1.0f : 0.0f;
  votes[sizes.suspect >= 0 ? kVoteAbove : kVoteUnusual] = sizes.above;
  if (found.first >= 0) Accuse(found.first, rank, &votes[kVoteOther]);
  if (sizes.suspect >= 0) Accuse(sizes.suspect, rank, &votes[kVoteSuspect]);
  return votes;
}

// What the accusations that begin at `at` are together.
struct Accused {
  int64_t rank = -1;  // -1: several
  int64_t gradient = -1;
};
// REQUIRES: there is one.
inline Accused WhomOf(const Votes& together, int at) {
  const float* const values = &together[static_cast<size_t>(at)];
  const float low = values[1] / values[0];
  const float high = values[3] / values[0];
  // The mean of squares is the square of the mean for equal numbers only. Ranks that differ by one
  // have 0.25 between these, if they weigh the same.
  constexpr float kEqual = 0.01f;
  if (std::abs(values[2] / values[0] - low * low) > kEqual ||
      std::abs(values[4] / values[0] - high * high) > kEqual) {
    return {};
  }
  return {std::lround(high) * kDigit + std::lround(low), std::lround(values[5] / values[0])};
}

// Whose gradient is out of proportion: that of one rank, while no other finds anything like it.
inline Accused OutlierOf(const Votes& together) {
  const bool one = together[kVoteSuspect] > 0 && !(together[kVoteOther] > 0) &&
                   kAlone * together[kVoteUnusual] <= together[kVoteAbove];
  return one ? WhomOf(together, kVoteSuspect) : Accused();
}

// Adds a gradient that is not finite to what is found in those before it. `number`: which of the
// variables it is of.
inline void FoundOne(const void* data, DType dtype, int64_t values, int64_t number,
                     FoundNotFinite* found) {
  if (found->gradients++ > 0) return;
  const NotFinite counts = CountNotFinite(data, dtype, static_cast<size_t>(values));
  *found = {number, 1, counts.nans, counts.infinities, values};
}

// Adds a gradient, after a look at its first `most` values (0: at all of them).
inline void Look(const void* data, DType dtype, int64_t values, int64_t most, int64_t number,
                 FoundNotFinite* found) {
  const auto looked_at = static_cast<size_t>(most > 0 ? std::min(most, values) : values);
  if (AllFinite(data, dtype, looked_at)) return;
  FoundOne(data, dtype, values, number, found);
}

// The same, and how large it is.
inline GradientSize LookAtSize(const void* data, DType dtype, int64_t values, int64_t most,
                               int64_t number, int64_t layer, FoundNotFinite* found) {
  GradientSize size;
  size.layer = layer;
  size.whole = most == 0 || values <= most;
  const Measured sum = Measure(data, dtype, static_cast<size_t>(size.whole ? values : most));
  if (!sum.finite) {
    FoundOne(data, dtype, values, number, found);
  } else if (sum.largest > 0) {
    size.largest = static_cast<float>(std::log2(sum.largest));
    size.norm = static_cast<float>(std::log2(sum.squares) / 2);
  }
  return size;
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
  std::string sizes = {};           // under what their sizes are remembered; "": they are not
};

}  // namespace tfhvd
