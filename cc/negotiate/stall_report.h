// StallReport: which ranks wait for which in a tally (tally.h), in words: the collectives that some
// ranks have announced and others have not for longer than a limit. Part of the coordinator.
//
// Used by the engine's thread only. Times are in seconds on one monotonic clock.
#pragma once

#include <string>
#include <vector>

#include "cc/negotiate/tally.h"

namespace tfhvd {

// Seconds until a waiting collective is reported, and until the job ends (0: it does not).
struct StallTimes {
  double check = 60.0;
  double shutdown = 0.0;
};

struct StallReport {
  // Ranks that have waited so long that they may think that rank 0 is gone.
  std::vector<int> anxious;
  // A line for each collective that was not reported before; "" if there is none.
  std::string lines;
  // Two collectives for which ranks wait crosswise, or another guess at the cause.
  std::string cause;
  // Why the job ends; "" if it continues.
  std::string fatal;
};

// Returns the report on `tally` at `now`; marks the reported slots. `hosts`: by rank.
StallReport ReportStalls(Tally* tally, const StallTimes& times,
                         const std::vector<std::string>& hosts, double now);

}  // namespace tfhvd
