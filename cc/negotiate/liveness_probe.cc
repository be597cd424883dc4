#include "cc/negotiate/liveness_probe.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/base/types.h"

namespace tfhvd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLeastInterval = 0.1;
constexpr double kMostInterval = 1.0;

// The number of intervals for which a waiting rank that has reported counts as waiting.
constexpr double kRemembered = 3.0;

double Limit(double check, double shutdown) {
  if (check > 0 && shutdown > 0) return std::min(check, shutdown);
  return check > 0 ? check : shutdown;
}

}  // namespace

double LivenessProbe::Interval(double check, double shutdown) {
  const double limit = Limit(check, shutdown);
  return limit > 0 ? std::clamp(limit / 8, kLeastInterval, kMostInterval) : kNever;
}

LivenessProbe::LivenessProbe(std::vector<std::string> hosts, double check, double shutdown)
    : hosts_(std::move(hosts)),
      check_(check),
      shutdown_(shutdown),
      interval_(Interval(check, shutdown)),
      asked_(hosts_.size(), kNever),
      until_(-kNever) {}

void LivenessProbe::Answered(int rank) { asked_[static_cast<size_t>(rank)] = kNever; }

void LivenessProbe::Waits(int rank, const std::string& what, double seconds, double now) {
  if (Limit(check_, shutdown_) <= 0) return;
  if (!active(now)) {
    asked_.assign(asked_.size(), kNever);
    next_ = now;
    reported_ = false;
    waits_since_ = kNever;
  }
  until_ = now + kRemembered * interval_;
  if (rank != waiter_ && now - seconds >= waits_since_) return;
  // The rank may have begun another wait, or another rank has waited longer.
  if (now - seconds > waits_since_ + interval_) reported_ = false;
  waiter_ = rank;
  waits_in_ = what;
  waits_since_ = now - seconds;
}

std::vector<int> LivenessProbe::Ask(double now) {
  std::vector<int> ranks;
  if (!active(now)) until_ = -kNever;
  if (!active(now) || now < next_) return ranks;
  next_ = now + interval_;
  for (size_t r = 1; r < asked_.size(); ++r) {
    if (asked_[r] != kNever) continue;  // it has not answered the last call
    asked_[r] = now;
    ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

double LivenessProbe::wake_at() const { return until_ == -kNever ? kNever : next_; }

double LivenessProbe::Waited(double now) const { return active(now) ? now - waits_since_ : 0.0; }

std::vector<int> LivenessProbe::Missing(double now, double least) const {
  std::vector<int> missing;
  for (size_t r = 1; r < asked_.size(); ++r) {
    if (asked_[r] != kNever && now - asked_[r] >= least) missing.push_back(static_cast<int>(r));
  }
  return missing;
}

std::string LivenessProbe::Text(const std::vector<int>& missing, double now) const {
  double since = now;
  for (const int r : missing) since = std::min(since, asked_[static_cast<size_t>(r)]);
  const bool one = missing.size() == 1;
  // If the first rank of a host passes messages on for the others, all of them seem missing when it
  // is.
  const std::string& host = hosts_[static_cast<size_t>(missing[0])];
  const bool host_of_all = std::all_of(missing.begin(), missing.end(), [&](int r) {
    return hosts_[static_cast<size_t>(r)] == host;
  });
  const auto on_host = std::count(hosts_.begin(), hosts_.end(), host);
  const bool whole = !one && host_of_all && on_host == static_cast<std::ptrdiff_t>(missing.size());
  const std::string first = "rank " + std::to_string(missing[0]);
  std::string who = first + " (host " + host + ") has";
  if (!one) who = "ranks " + RankList(missing) + " (first on host " + host + ") have";
  if (whole) {
    who = "ranks " + RankList(missing) + " (all of host " + host + "; " + first +
          " may pass on the messages of the others) have";
  }
  return who + " not answered for " + std::to_string(static_cast<int>(now - since)) +
         " s, while rank " + std::to_string(waiter_) + " has waited " +
         std::to_string(static_cast<int>(Waited(now))) + " s in the middle of " + waits_in_ + ". " +
         (one ? "Its process" : "Their processes") +
         " may be stopped (kill -CONT) or cut off from the network.";
}

// Half of the limit distinguishes a missing rank from a short delay.
std::string LivenessProbe::TakeWarning(double now) {
  if (reported_ || check_ <= 0 || Waited(now) < check_) return "";
  const std::vector<int> missing = Missing(now, check_ / 2);
  if (missing.empty()) return "";
  reported_ = true;
  return Text(missing, now);
}

Status LivenessProbe::Check(double now) const {
  if (shutdown_ <= 0 || Waited(now) < shutdown_) return Status::Ok();
  const std::vector<int> missing = Missing(now, shutdown_ / 2);
  if (missing.empty()) return Status::Ok();
  return Status::Aborted(Text(missing, now) +
                         " That is longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS allows.");
}

}  // namespace tfhvd
