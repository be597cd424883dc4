// What has become of a job's members from one generation to another, as values and in words. Pure.
#pragma once

#include <string>
#include <vector>

#include "cc/comm/membership.h"

namespace tfhvd {

struct RosterChange {
  std::vector<int> lost;    // by their ranks of before
  std::vector<int> joined;  // by their ranks of now
};
RosterChange Compare(const Roster& before, const Roster& roster);

// "ranks 1, 2 failed; the job continues with 2 ranks (generation 3)."
std::string Describe(const RosterChange& change, const Roster& roster);

}  // namespace tfhvd
