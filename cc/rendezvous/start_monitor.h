// What is asked in the waits of ranks that meet, at the start of an elastic job and after each
// change of its members. A rank that is lost meanwhile may have said nothing to anybody, so that no
// connection tells of its end: a roster without it does.
#pragma once

#include <chrono>
#include <optional>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/comm/membership.h"
#include "cc/comm/stall_guard.h"
#include "cc/elastic/later_generation.h"

namespace tfhvd {

// Asks another monitor, which outlives it, and then warns of long waits as anywhere.
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

// Of the start. Used by the thread that may ask the membership, which outlives it.
class StartMonitor : public WaitMonitor {
 public:
  StartMonitor(Membership* membership, const Config& config, int rank)
      : membership_(membership), later_(membership, 0), waits_(&later_, config, rank) {}

  Status OnWait(const Wait& wait) override { return waits_.OnWait(wait); }

  // Whether the job continues without ranks that were lost. Waits to be told.
  bool GoesOn() {
    std::optional<Roster> roster;
    return membership_->Next(0, kRosterLimit, &roster).ok() && roster.has_value();
  }

 private:
  // A launcher finds a lost process at once, and a host that is cut off after some seconds. An
  // error that is no loss is to be told soon.
  static constexpr std::chrono::seconds kRosterLimit{10};

  Membership* const membership_;  // Not owned.
  LaterGeneration later_;
  LongWaitMonitor waits_;
};

}  // namespace tfhvd
