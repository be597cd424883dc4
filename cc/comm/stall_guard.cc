#include "cc/comm/stall_guard.h"

#include <cstdio>

#include "cc/base/types.h"

namespace tfhvd {
namespace {

// "has waited 6.0 s in the MPI allreduce for ranks [2]. ..."
std::string Text(const Wait& wait) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", wait.seconds);
  const std::string whom = wait.ranks.empty() ? "other ranks" : "ranks " + RankList(wait.ranks);
  return std::string("has waited ") + seconds + " s in the " + wait.call + " for " + whom +
         ". They may be computing, stopped (kill -CONT), or cut off from the network.";
}

}  // namespace

StallLimits StallLimitsOf(const Config& config) {
  if (!config.stall_check) return {0.0, 0.0};
  return {config.stall_check_time, config.stall_shutdown_time};
}

Status StallGuard::OnWait(const Wait& wait) {
  if (wait.seconds < last_) warned_ = false;
  last_ = wait.seconds;
  if (limits_.shutdown > 0 && wait.seconds >= limits_.shutdown + kGraceSeconds) {
    return Status::Aborted("rank " + std::to_string(rank_) + " " + Text(wait) +
                           " That is longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS allows.");
  }
  if (limits_.check > 0 && wait.seconds >= limits_.check && !warned_) {
    warned_ = true;
    log_.Warning(Text(wait));
  }
  return Status::Ok();
}

}  // namespace tfhvd
