// StallGuard: the limits of a wait within a collective. It warns once when a wait has lasted for
// the check time, and ends a wait that has lasted longer than the shutdown time.
//
// It names the ranks that this rank waits for, although they may wait for others. So it ends the
// wait a little later than the coordinator, which knows better (negotiate/liveness_probe.h). Used
// by one thread at a time.
#pragma once

#include <string>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

struct StallLimits {
  double check = 60.0;    // seconds until the warning; 0: none
  double shutdown = 0.0;  // seconds until the error; 0: never
};

// Returns the limits in the settings.
StallLimits StallLimitsOf(const Config& config);

class StallGuard : public WaitMonitor {
 public:
  // How much later than the coordinator a rank ends its wait.
  static constexpr double kGraceSeconds = 2.0;

  StallGuard(const Log& log, int rank, const StallLimits& limits)
      : log_(log), rank_(rank), limits_(limits) {}

  Status OnWait(const Wait& wait) override;

 private:
  const Log log_;
  const int rank_;
  const StallLimits limits_;
  double last_ = 0.0;  // seconds at the last call; a smaller number now means another wait
  bool warned_ = false;
};

}  // namespace tfhvd
