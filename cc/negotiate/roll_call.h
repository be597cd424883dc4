// RollCall: finds the ranks that do not answer while others wait for them in the middle of a
// collective. Rank 0's coordinator asks every rank for a word from time to time as long as some
// rank says that it waits; a rank whose engine runs answers, also out of a collective of its own.
// So whoever does not answer is stopped or cut off, and whoever does is innocent, however the ranks
// wait for each other. Pure: messages and times in, ranks out.
//
// Rank 0 is not asked: that it asks says that it runs. Times are in seconds on one monotonic clock.
#pragma once

#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

class RollCall {
 public:
  // `check`, `shutdown`: for how long a rank may wait before the missing ones are reported, and
  // before the job ends; 0: for ever. `hosts`: by rank.
  RollCall(std::vector<std::string> hosts, double check, double shutdown);

  // How often a waiting rank says so, and others are asked.
  static double Interval(double check, double shutdown);

  // Something came from the rank.
  void Answered(int rank);

  // It says that it has waited for so long in `what`, a collective.
  void Waits(int rank, const std::string& what, double seconds, double now);

  // The ranks to ask for a word now; they are taken to be asked then.
  std::vector<int> Ask(double now);

  // When Ask or Check has something to do though nothing arrives.
  double wake_at() const;

  // A warning about ranks that do not answer, once for each wait; "" where there is none.
  std::string TakeWarning(double now);

  // Not ok: some rank has waited for longer than `shutdown`, for ranks that do not answer.
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
  std::vector<double> asked_;  // by rank: since when it owes a word; kNever: it owes none
  double until_;               // the roll is called
  double next_ = 0.0;          // when it is called again
  int waiter_ = 0;             // who has waited longest, and in what
  std::string waits_in_;
  double waits_since_ = 0.0;
  bool reported_ = false;
};

}  // namespace tfhvd
