// StallReport: who waits for whom in a tally (tally.h), in words: which collectives some ranks have
// announced and others have not for longer than a limit. Part of the coordinator.
//
// Used by the engine's thread only. Times are in seconds on one monotonic clock.
#pragma once

#include <string>
#include <vector>

#include "cc/negotiate/tally.h"

namespace tfhvd {

// Seconds until a collective that waits is reported, and until the job ends (0: it does not).
struct StallTimes {
  double check = 60.0;
  double shutdown = 0.0;
};

struct StallReport {
  // Ranks that have waited long enough to wonder whether this one is still there.
  std::vector<int> anxious;
  // A line for each collective that was not reported before; "" where there is none.
  std::string lines;
  // Which of them ranks wait for crosswise, or another guess at the cause.
  std::string cause;
  // Why the job ends; "" where it goes on.
  std::string fatal;
};

// What `tally` shows now; marks the slots that are reported. `hosts`: by rank.
StallReport ReportStalls(Tally* tally, const StallTimes& times,
                         const std::vector<std::string>& hosts, double now);

}  // namespace tfhvd
