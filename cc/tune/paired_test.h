// PairedTest: whether one way to run a step is faster than another, from the times of both, taken
// in turn. It is a sequential test: after each pair the verdict is that the challenger is faster,
// that it is not, or that more pairs are needed.
//
// "Faster" needs strong evidence: if the challenger is not faster, this verdict comes less than
// three times in a thousand tests. "Not faster" needs little, because keeping the incumbent loses
// nothing. Influences on both times of a pair (another program on the machine, a slow network) do
// not matter, because a pair counts by its ratio.
//
// A pure function of its input.
#pragma once

#include <vector>

namespace tfhvd {

class PairedTest {
 public:
  enum class Verdict { kOpen, kFaster, kNotFaster };

  // A challenger must save this fraction of the time to be worth a change.
  static constexpr double kLeastGain = 0.01;
  static constexpr int kMostPairs = 32;

  // Adds one pair: the times of a step with both, in any unit. REQUIRES: both are above 0.
  void Add(double challenger, double incumbent);

  Verdict verdict() const;

  int pairs() const { return static_cast<int>(log_ratios_.size()); }
  // Returns how much longer the challenger's steps take, as a fraction of the incumbent's: -0.2 is
  // 20% shorter. Returns 0 if there is no pair.
  double change() const;

 private:
  double Mean() const;

  std::vector<double> log_ratios_;  // of the challenger's time to the incumbent's
};

}  // namespace tfhvd
