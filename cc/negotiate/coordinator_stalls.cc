// What the coordinator says of ranks that are slow: stalled tensors, failures that are not
// confirmed.
#include <algorithm>
#include <limits>

#include "cc/negotiate/coordinator.h"

namespace tfhvd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The ranks that have asked for `slot` and not for `other`, though they take part in both.
std::vector<int> WhoOnlyAskedFor(const Slot& slot, const Slot& other) {
  const std::vector<int>& members = *other.members;
  std::vector<int> ranks;
  for (int r : *slot.members) {
    const bool in_both = std::binary_search(members.begin(), members.end(), r);
    if (in_both && HasAnnounced(slot, r) && !HasAnnounced(other, r)) ranks.push_back(r);
  }
  return ranks;
}

// Two collectives for which ranks wait crosswise, as where they call them in other orders; "" where
// there are none.
std::string CrossText(const std::vector<const Slot*>& waiting) {
  for (const Slot* one : waiting) {
    for (const Slot* other : waiting) {
      const std::vector<int> here = WhoOnlyAskedFor(*one, *other);
      const std::vector<int> there = WhoOnlyAskedFor(*other, *one);
      if (here.empty() || there.empty()) continue;
      return "\n  Ranks wait for each other: ranks " + RankList(here) + " have called '" +
             one->key.name + "' and not '" + other->key.name + "', ranks " + RankList(there) +
             " the other way round. Calls that wait for their results before the next one (eager "
             "calls, loops, functions called one after the other) have to come in one order on "
             "all ranks.";
    }
  }
  return "";
}

}  // namespace

// Whether nothing may be decided yet (invariant 3).
bool Coordinator::HasError() { return !error_epoch_.Missing(seen_, left_).empty(); }

double Coordinator::wake_at() const {
  double at = kNever;
  if (num_ready_ > 0 && error_epoch_.sequence() == 0) at = ready_since_ + options_.cycle_time;
  if (options_.stall_check && (open_ > 0 || error_epoch_.sequence() != 0))
    at = std::min(at, next_stall_check_);
  return std::min(at, roll_call_.wake_at());
}

Status Coordinator::lost(double now) const {
  const bool some_left = num_left_ > 0 && num_left_ < size();
  if (stalled_ && some_left && now - first_left_at_ >= options_.stall_shutdown_time) return fatal_;
  return roll_call_.Check(now);
}

void Coordinator::CallTheRoll(double now) {
  for (const int rank : roll_call_.Ask(now)) next_[rank].confirm = true;
  const std::string warning = roll_call_.TakeWarning(now);
  if (!warning.empty()) warning_ += (warning_.empty() ? "" : "\n") + warning;
}

// Adds to what TakeWarning gives; "" adds nothing.
void Coordinator::Warn(const std::string& text) {
  if (!warning_.empty() && !text.empty()) warning_ += "\n";
  warning_ += text;
}

void Coordinator::CheckStalls(double now) {
  if (!options_.stall_check || (open_ == 0 && error_epoch_.sequence() == 0) ||
      now < next_stall_check_)
    return;
  // Often enough for either limit.
  double interval = options_.stall_check_time / 4;
  if (options_.stall_shutdown_time > 0) {
    interval = std::min(interval, options_.stall_shutdown_time / 8);
  }
  next_stall_check_ = now + interval;
  constexpr int kMostNamed = 8;
  std::vector<const Slot*> waiting;
  std::string report;
  int stalled = 0;
  Slot* fatal = nullptr;
  for (auto& [key, slot] : slots_) {
    if (slot.count == 0 || slot.complete) continue;
    const double age = now - slot.since;
    for (int r = 0; r < size() && age >= options_.stall_check_time / 2; ++r) {
      // A sign of life to those who wait, or they would take this rank to be gone.
      if (HasAnnounced(slot, r)) next_[r].confirm = true;
    }
    if (slot.joins) continue;  // who has joined may wait for the others as long as they train
    if (options_.stall_shutdown_time > 0 && age >= options_.stall_shutdown_time) fatal = &slot;
    if (age >= options_.stall_check_time && waiting.size() < kMostNamed) waiting.push_back(&slot);
    if (slot.reported || age < options_.stall_check_time) continue;
    slot.reported = true;
    if (++stalled > kMostNamed) continue;
    report += "\n  " + WaitingText(slot, now, options_.hosts, joined_.Of(slot.key.process_set));
  }
  if (stalled > kMostNamed) report += "\n  and " + std::to_string(stalled - kMostNamed) + " more";
  report += UnconfirmedText(now);
  const std::string crosswise = CrossText(waiting);
  if (!report.empty()) {
    Warn("some ranks wait for others:" + report +
         (!crosswise.empty() ? crosswise
                             : "\n  A rank may be slow, stopped, or on another path through the "
                               "program (a condition that depends on the rank)."));
  }
  if (fatal == nullptr) return;
  stalled_ = true;
  fatal_ = Status::Aborted(
      "stalled for longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS: " +
      WaitingText(*fatal, now, options_.hosts, joined_.Of(fatal->key.process_set)) + crosswise);
  FailAllOpen();
}

// A rank that does not confirm a failure (invariant 3) holds up everybody; "" where there is none
// to report.
std::string Coordinator::UnconfirmedText(double now) {
  const std::vector<int> missing = error_epoch_.Missing(seen_, left_);
  if (missing.empty()) return "";
  if (now - error_epoch_.since() >= options_.stall_check_time / 2) {
    for (int r = 1; r < size(); ++r) next_[r].confirm = true;
  }
  if (!error_epoch_.Report(now, options_.stall_check_time)) return "";
  return "\n  a collective failed " + SecondsText(now - error_epoch_.since()) + " ago, and ranks " +
         RankList(missing) + " (first on host " + options_.hosts[missing[0]] +
         ") have not taken note of it: nothing else is agreed until they do";
}

}  // namespace tfhvd
