// FiniteVote: whether the gradients of a step are finite and of usual size, as one rank finds and
// as the ranks find together.
//
// A rank's vote consists of kVoteValues numbers. The ranks sum them, average them, or average them
// by weights, together with the gradients of the step. The meaning lies in relations between the
// numbers, which are the same in each of these cases.
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

// A rank's finding on its gradients, in the order of the backward pass.
struct FoundNotFinite {
  int64_t first = -1;     // the first gradient that is not finite; -1: all are
  int64_t gradients = 0;  // number of gradients that are not finite
  int64_t nans = -1;      // in the first such gradient; -1: not counted
  int64_t infinities = -1;
  int64_t values = 0;  // number of values of the first such gradient
};
constexpr int kFoundValues = 5;

// The size of a gradient, as powers of two.
constexpr float kNoSize = -std::numeric_limits<float>::infinity();
struct GradientSize {
  int64_t layer = 0;  // equal for gradients of one layer
  float norm = kNoSize;
  float largest = kNoSize;  // of the absolute values; kNoSize: all are 0, or some not finite
  bool whole = true;        // whether all values were measured
};

// A rank's opinion on the sizes of its gradients (observe/outliers.h).
struct Suspicion {
  int64_t suspect = -1;  // the only gradient that is far larger than usual; -1: none
  float above = 0.0f;    // how much larger, as a power of two; without a suspect, the most of any
};
constexpr float kUnknown = 1024.0f;  // greater than all others

// A suspect is at least so many times as far above its usual size as any other gradient.
constexpr float kAlone = 8.0f;

// GradientSizes: remembers the sizes of a rank's gradients (observe/size_watch.h).
class GradientSizes {
 public:
  using Numbered = std::vector<std::pair<int64_t, GradientSize>>;

  virtual ~GradientSizes() = default;

  // Returns how many values of each gradient to measure; 0: all. `name`: whose gradients they are.
  virtual int64_t Most(const std::string& name) = 0;

  // Adds some gradients of a step, by their numbers, and the time of measuring them.
  virtual void Add(const std::string& name, const Numbered& some,
                   std::chrono::nanoseconds took) = 0;

  // Returns the opinion on a step whose gradients were all added.
  virtual Suspicion Judge(const std::string& name) = 0;
};

// The values of a vote: first a 1 if all gradients are finite, otherwise an accusation; then by how
// much a gradient is larger than usual, or, if one is suspect, an accusation and by how much.
// Otherwise zeros.
//
// An accusation consists of a 1, the two digits of the rank (to the base kDigit), each with its
// square, and the gradient. The squares distinguish one rank from several; the squares of digits
// are exact enough in a float.
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

// The combined accusations that begin at `at`.
struct Accused {
  int64_t rank = -1;  // -1: several
  int64_t gradient = -1;
};
// REQUIRES: there is an accusation.
inline Accused WhomOf(const Votes& together, int at) {
  const float* const values = &together[static_cast<size_t>(at)];
  const float low = values[1] / values[0];
  const float high = values[3] / values[0];
  // The mean of squares equals the square of the mean only if all numbers are equal. For two ranks
  // that differ by one, the difference is 0.25, if they weigh the same.
  constexpr float kEqual = 0.01f;
  if (std::abs(values[2] / values[0] - low * low) > kEqual ||
      std::abs(values[4] / values[0] - high * high) > kEqual) {
    return {};
  }
  return {std::lround(high) * kDigit + std::lround(low), std::lround(values[5] / values[0])};
}

// Returns the gradient out of proportion, if only one rank has one, and no other finds anything
// like it.
inline Accused OutlierOf(const Votes& together) {
  const bool one = together[kVoteSuspect] > 0 && !(together[kVoteOther] > 0) &&
                   kAlone * together[kVoteUnusual] <= together[kVoteAbove];
  return one ? WhomOf(together, kVoteSuspect) : Accused();
}

// Records a gradient that is not finite. `number`: the number of its variable.
inline void FoundOne(const void* data, DType dtype, int64_t values, int64_t number,
                     FoundNotFinite* found) {
  if (found->gradients++ > 0) return;
  const NotFinite counts = CountNotFinite(data, dtype, static_cast<size_t>(values));
  *found = {number, 1, counts.nans, counts.infinities, values};
}

// Records a gradient, after a check of its first `most` values (0: of all values).
inline void Look(const void* data, DType dtype, int64_t values, int64_t most, int64_t number,
                 FoundNotFinite* found) {
  const auto looked_at = static_cast<size_t>(most > 0 ? std::min(most, values) : values);
  if (AllFinite(data, dtype, looked_at)) return;
  FoundOne(data, dtype, values, number, found);
}

// Like Look, and returns the size of the gradient.
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

// The finding as values of a tensor.
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

// The gradients that are reduced together in every step.
struct SharedGradients {
  std::string reductions;           // the common prefix of their names
  std::vector<std::string> labels;  // the variables, by the numbers of the gradients
  bool left_out = false;            // ranks with gradients that are not finite do not participate
  int32_t process_set = 0;          // the ranks that reduce them
  std::string sizes = {};           // the key of their sizes in GradientSizes; "": not stored
};

}  // namespace tfhvd
