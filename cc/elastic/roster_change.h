// RosterChange: how a job's members differ between two generations, as a value and in words. Pure.
#pragma once

#include <string>
#include <vector>

#include "cc/comm/membership.h"

namespace tfhvd {

struct RosterChange {
  std::vector<int> lost;    // ranks in the old roster
  std::vector<int> joined;  // ranks in the new roster
};
RosterChange Compare(const Roster& before, const Roster& roster);

// "ranks 1, 2 failed; the job continues with 2 ranks (generation 3)."
std::string Describe(const RosterChange& change, const Roster& roster);

}  // namespace tfhvd
