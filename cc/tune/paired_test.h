// PairedTest: whether one way to run a step is faster than another, from the times of both, taken
// in turn. It is sequential: after each pair it says that the challenger is faster, that it is not,
// or that more pairs are needed.
//
// "Faster" is said on strong evidence only: where the challenger is not, it comes less than three
// times in a thousand tests. "Not faster" needs little, for to keep what there is loses nothing.
// What moves both times of a pair alike (another program on the machine, a slow network) is not
// counted, for a pair counts by its ratio.
//
// A pure function of what it was given.
#pragma once

#include <vector>

namespace tfhvd {

class PairedTest {
 public:
  enum class Verdict { kOpen, kFaster, kNotFaster };

  // A challenger has to save this part of the time to be worth a change.
  static constexpr double kLeastGain = 0.01;
  static constexpr int kMostPairs = 32;

  // One pair's times of a step, in any unit. REQUIRES: both are above 0.
  void Add(double challenger, double incumbent);

  Verdict verdict() const;

  int pairs() const { return static_cast<int>(log_ratios_.size()); }
  // How much longer the challenger's steps take, as a part of the incumbent's: -0.2 is 20% shorter.
  // 0 where there is no pair.
  double change() const;

 private:
  double Mean() const;

  std::vector<double> log_ratios_;  // of the challenger's time to the incumbent's
};

}  // namespace tfhvd
