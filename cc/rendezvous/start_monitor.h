// StartMonitor and LongWaitMonitor: called while ranks wait for each other, at the start of an
// elastic job and after each change of its members. A rank that fails during that time may not have
// connected to any other, so that no connection reports its end; a roster without it does.
#pragma once

#include <chrono>
#include <optional>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/comm/membership.h"
#include "cc/comm/stall_guard.h"
#include "cc/elastic/generation_monitor.h"

namespace tfhvd {

// Calls another monitor, which outlives this one, and then warns of long waits as every wait does.
class LongWaitMonitor : public WaitMonitor {
 public:
  LongWaitMonitor(WaitMonitor* changes, const Config& config, int rank)
      : changes_(changes), limits_(Log(config.log_level, rank), rank, StallLimitsOf(config)) {}

  Status OnWait(const Wait& wait) override {
    TFHVD_RETURN_IF_ERROR(changes_->OnWait(wait));
    return limits_.OnWait(wait);
  }

 private:
  WaitMonitor* const changes_;  // Not owned.
  StallGuard limits_;
};

// For the start. Used by the thread that may ask the membership, which outlives this object.
class StartMonitor : public WaitMonitor {
 public:
  StartMonitor(Membership* membership, const Config& config, int rank)
      : membership_(membership), later_(membership, 0), waits_(&later_, config, rank) {}

  Status OnWait(const Wait& wait) override { return waits_.OnWait(wait); }

  // Waits for the launcher's word and returns whether the job continues without the failed ranks.
  bool Continues() {
    std::optional<Roster> roster;
    return membership_->Next(0, kRosterLimit, &roster).ok() && roster.has_value();
  }

 private:
  // A launcher notices a failed process at once, and an unreachable host after some seconds. Other
  // errors should be reported soon.
  static constexpr std::chrono::seconds kRosterLimit{10};

  Membership* const membership_;  // Not owned.
  GenerationMonitor later_;
  LongWaitMonitor waits_;
};

}  // namespace tfhvd
