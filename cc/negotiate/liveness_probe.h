// LivenessProbe: finds the ranks that do not answer while others wait for them in the middle of a
// collective. While some rank reports that it waits, rank 0's coordinator asks every rank for an
// answer from time to time. A rank whose engine runs answers, also out of a collective. So a rank
// that does not answer is stopped or cut off, and a rank that does is not the cause, however the
// ranks wait for each other. Pure: messages and times in, ranks out.
//
// Rank 0 is not asked, because it runs when it asks. Times are in seconds on one monotonic clock.
#pragma once

#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

class LivenessProbe {
 public:
  // `check`, `shutdown`: how long a rank may wait before missing ranks are reported, and before the
  // job ends; 0: for ever. `hosts`: by rank.
  LivenessProbe(std::vector<std::string> hosts, double check, double shutdown);

  // Returns how often a waiting rank reports, and others are asked.
  static double Interval(double check, double shutdown);

  // Records a message of the rank.
  void Answered(int rank);

  // Records the report of a rank that has waited for `seconds` in `what`, a collective.
  void Waits(int rank, const std::string& what, double seconds, double now);

  // Returns the ranks to ask for an answer now, and records that they are asked.
  std::vector<int> Ask(double now);

  // Returns when Ask or Check has work even if nothing arrives.
  double wake_at() const;

  // Returns a warning about ranks that do not answer, once for each wait; "" if there is none.
  std::string TakeWarning(double now);

  // Returns an error if some rank has waited longer than `shutdown` for ranks that do not answer.
  Status Check(double now) const;

 private:
  bool active(double now) const { return now < until_; }
  double Waited(double now) const;
  std::vector<int> Missing(double now, double least) const;
  std::string Text(const std::vector<int>& missing, double now) const;

  const std::vector<std::string> hosts_;
  const double check_;
  const double shutdown_;
  const double interval_;
  std::vector<double> asked_;  // by rank: since when it owes an answer; kNever: it owes none
  double until_;               // end of the liveness probe
  double next_ = 0.0;          // time of the next call
  int waiter_ = 0;             // the rank that has waited longest
  std::string waits_in_;
  double waits_since_ = 0.0;
  bool reported_ = false;
};

}  // namespace tfhvd
