#include "cc/tune/paired_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace tfhvd {
namespace {

// Quantiles of Student's t distribution. Each look at the pairs is wrong once in 10^4; there are
// fewer than 30. Begins at 3 degrees of freedom: fewer never give "faster".
constexpr int kFewestFreedoms = 3;
constexpr std::array<double, 29> kOnceInTenThousand = {
    22.20, 13.03, 9.68, 8.02, 7.06, 6.44, 6.01, 5.69, 5.45, 5.26, 5.11, 4.99, 4.88, 4.79, 4.71,
    4.65,  4.59,  4.54, 4.49, 4.45, 4.42, 4.38, 4.35, 4.32, 4.30, 4.28, 4.25, 4.23, 4.22};
static_assert(kOnceInTenThousand.size() + kFewestFreedoms == PairedTest::kMostPairs);

// Begins at 1 degree of freedom, for the first pairs: a challenger that survives them is worth more
// pairs. After those, only one that looks faster by more than its error is.
constexpr std::array<double, 6> kOnceInTen = {3.078, 1.886, 1.638, 1.533, 1.476, 1.440};

// Times of the same steps on a quiet machine differ by this much, so a smaller deviation between
// pairs is chance.
constexpr double kLeastDeviation = 0.002;

}  // namespace

void PairedTest::Add(double challenger, double incumbent) {
  log_ratios_.push_back(std::log(challenger / incumbent));
}

double PairedTest::Mean() const {
  return std::accumulate(log_ratios_.begin(), log_ratios_.end(), 0.0) /
         static_cast<double>(log_ratios_.size());
}

double PairedTest::change() const { return log_ratios_.empty() ? 0.0 : std::exp(Mean()) - 1.0; }

PairedTest::Verdict PairedTest::verdict() const {
  const int freedoms = pairs() - 1;
  if (freedoms < 1) return Verdict::kOpen;
  const double mean = Mean();
  double squares = 0.0;
  for (const double x : log_ratios_) squares += (x - mean) * (x - mean);
  const double deviation = std::max(kLeastDeviation, std::sqrt(squares / freedoms));
  const double error = deviation / std::sqrt(static_cast<double>(pairs()));
  const double wanted = std::log(1.0 - kLeastGain);
  if (freedoms >= kFewestFreedoms) {
    const auto i = static_cast<size_t>(freedoms - kFewestFreedoms);
    if (mean + kOnceInTenThousand[i] * error < wanted) return Verdict::kFaster;
  }
  const auto first = static_cast<size_t>(freedoms - 1);
  const bool promising = first < kOnceInTen.size() ? mean - kOnceInTen[first] * error <= wanted
                                                   : mean + error < wanted;
  return promising && pairs() < kMostPairs ? Verdict::kOpen : Verdict::kNotFaster;
}

}  // namespace tfhvd
