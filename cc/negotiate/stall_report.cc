#include "cc/negotiate/stall_report.h"

#include <algorithm>

#include "cc/negotiate/agree.h"

namespace tfhvd {
namespace {

constexpr size_t kMostNamed = 8;

// Returns the ranks that have announced `slot` but not `other`, though they are members of both.
std::vector<int> WhoOnlyAnnounced(const Slot& slot, const Slot& other) {
  const std::vector<int>& members = *other.members;
  std::vector<int> ranks;
  for (int r : *slot.members) {
    const bool in_both = std::binary_search(members.begin(), members.end(), r);
    if (in_both && HasAnnounced(slot, r) && !HasAnnounced(other, r)) ranks.push_back(r);
  }
  return ranks;
}

// Returns a text about two collectives for which ranks wait crosswise, because they call them in
// different orders; "" if there are none.
std::string CrossText(const std::vector<const Slot*>& waiting) {
  for (const Slot* one : waiting) {
    for (const Slot* other : waiting) {
      const std::vector<int> here = WhoOnlyAnnounced(*one, *other);
      const std::vector<int> there = WhoOnlyAnnounced(*other, *one);
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

StallReport ReportStalls(Tally* tally, const StallTimes& times,
                         const std::vector<std::string>& hosts, double now) {
  StallReport report;
  std::vector<bool> anxious(hosts.size(), false);
  std::vector<const Slot*> waiting;
  size_t unreported = 0;
  const Slot* fatal = nullptr;
  const auto text = [&](const Slot& slot) {
    return WaitingText(slot, now, hosts, tally->joined().Of(slot.key.process_set));
  };
  tally->ForEach([&](Slot* slot) {
    if (slot->count == 0 || slot->complete) return;
    const double age = now - slot->since;
    for (const int r : *slot->members) {
      if (age >= times.check / 2 && HasAnnounced(*slot, r)) anxious[static_cast<size_t>(r)] = true;
    }
    if (slot->joins) return;  // a joined rank may wait for the others as long as they train
    if (times.shutdown > 0 && age >= times.shutdown) fatal = slot;
    if (age < times.check) return;
    if (waiting.size() < kMostNamed) waiting.push_back(slot);
    if (slot->reported) return;
    slot->reported = true;
    if (++unreported <= kMostNamed) report.lines += "\n  " + text(*slot);
  });
  for (size_t r = 0; r < anxious.size(); ++r) {
    if (anxious[r]) report.anxious.push_back(static_cast<int>(r));
  }
  if (unreported > kMostNamed) {
    report.lines += "\n  and " + std::to_string(unreported - kMostNamed) + " more";
  }
  const std::string crosswise = CrossText(waiting);
  report.cause = !crosswise.empty()
                     ? crosswise
                     : "\n  A rank may be slow, stopped, or on another path through the program (a "
                       "condition that depends on the rank). On its host type: tfhvd why";
  if (fatal != nullptr) {
    report.fatal =
        "stalled for longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS: " + text(*fatal) + crosswise;
  }
  return report;
}

}  // namespace tfhvd
