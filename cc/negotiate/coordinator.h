// Coordinator: the part of the negotiation that runs on rank 0. It counts which rank has announced
// which collective, decides what is ready on all ranks and in which order they execute it, assigns
// cache ids, keeps the process sets and the joined ranks, and notices ranks that leave or do not
// respond. Announcements go in, Agreements come out; it sends nothing itself and reads no clock.
//
// Invariants:
//  1. There is one order of all items. Every rank gets the items of its process sets in this order,
//     except failures, which go to the ranks that announced the collective.
//  2. A rank has at most one open announcement per key: it announces a key again only after the
//     key's decision, or after its withdrawal was confirmed.
//  3. After a decision with an error nothing more is agreed until every rank that received it has
//     confirmed it. A failed operation makes a framework cancel others of the same step; their
//     withdrawals arrive with or before the confirmation, so that a cancelled tensor is never
//     paired with the next step's tensor of another rank.
//  4. Evicted ids: see CacheIds.
//  5. Collectives of a process set do not wait for ranks that have joined it; no collective waits
//     for a rank that has joined set 0. A collective is complete when all other ranks have
//     announced it, and a joined rank gets it as a placeholder. Once every rank of the set has
//     joined, none counts as joined.
//  6. The agreement that locks a step makes all open tallies void, on the ranks, too; announcements
//     that a rank sent before it saw that agreement do not count.
//
// The parts that its decisions come from: who announced what (tally.h), the numbers (cache_ids.h),
// the process sets (process_set_rules.h), unconfirmed failures (error_epoch.h), slow and missing
// ranks (stall_report.h, liveness_probe.h) and repeating steps (step_detector.h).
//
// Used by the engine's thread only. Times are in seconds on one monotonic clock.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/flow/observer.h"
#include "cc/flow/process_set_table.h"
#include "cc/negotiate/cache_ids.h"
#include "cc/negotiate/capacity_monitor.h"
#include "cc/negotiate/error_epoch.h"
#include "cc/negotiate/liveness_probe.h"
#include "cc/negotiate/lock_settings.h"
#include "cc/negotiate/outbox.h"
#include "cc/negotiate/slot.h"
#include "cc/negotiate/stall_report.h"
#include "cc/negotiate/tally.h"
#include "cc/schedule/step_detector.h"

namespace tfhvd {

class Coordinator {
 public:
  struct Options {
    int64_t cache_capacity = 1024;
    double cycle_time = 0.0;  // seconds
    bool stall_check = true;
    double stall_check_time = 60.0;    // seconds
    double stall_shutdown_time = 0.0;  // seconds; 0: never
    std::vector<std::string> hosts;    // by rank
    int generation = 0;                // of the members of an elastic job
    bool may_lock = false;             // whether ranks can vote without messages
    LockSettings::Options lock;
  };

  explicit Coordinator(Options options);

  // The observer learns when ranks are ready; not owned, may be null.
  void SetObserver(Observer* observer) { tally_.SetObserver(observer); }
  void WaitsFrom(double now) { tally_.WaitsFrom(now); }  // see Tally

  // Takes an announcement of rank `from`. REQUIRES: 0 <= from < size.
  Status Take(int from, Announcement announcement, double now);

  // Returns the messages to send now, as (rank, agreement), at most one for each rank.
  std::vector<std::pair<int, SharedAgreement>> Step(double now);

  // Returns the warnings of Step about stalled tensors, missing ranks or lacking numbers since the
  // last call, or "".
  std::string TakeWarning() { return std::exchange(warning_, {}); }

  // Returns the results of tuning since the last call.
  std::vector<Tuner::News> TakeTuning() { return lock_settings_.TakeNews(); }

  // Returns why the job has failed: ranks that others wait for do not answer (liveness_probe.h);
  // or, after a stall beyond the limit, some ranks have left and others do not leave soon. Ok if it
  // has not failed.
  Status lost(double now) const;

  // Returns whether a rank has yet to leave. Ranks that have left may end as soon as all have.
  bool awaits_leave_of(int rank) const { return !left_[static_cast<size_t>(rank)]; }

  // Returns when Step has work even if nothing arrives; a time in the past means now.
  double wake_at() const;

  // Returns whether some rank waits for another.
  bool waiting() const { return tally_.open() > 0 || tally_.complete() > 0; }

 private:
  int size() const { return static_cast<int>(options_.hosts.size()); }

  // Incoming announcements.
  Slot* SlotOf(const Key& key);
  Status TakeAnnounced(int from, Announcement* announcement, double now);
  Status CheckAnnounced(const Slot& slot, int rank) const;
  bool FailIfLost(Slot* slot);
  void Refuse(int rank, const Key& key);
  void Withdraw(int rank, const Key& key);

  // Failures and the end.
  void RankLeft(int rank, const std::string& reason, double now);
  void End(Status why);
  void Fail(Slot* slot, const Status& why);
  Status FatalStatusOf(const Slot& slot) const;

  // Decisions.
  void DecideComplete(double now);
  void Decide(Slot* slot, double now);
  Decision Compare(const Slot& slot, const std::vector<int>& absent);
  bool ConcernsAll(const Slot& slot) const { return slot.count == size(); }
  void GiveNumber(Slot* slot, const Request& request, const Decision& decision);
  void TakeEffect(const Request& request, Decision* decision);
  void RemoveProcessSet(int32_t id);
  void Tell(const Slot& slot, const std::vector<int>& absent, Agreement::Item item);

  // Slow ranks, and repeating steps.
  bool HasError();
  void CheckStalls(double now);
  void CallTheRoll(double now);
  std::string UnconfirmedText(double now);
  void Detect(const Slot& slot, bool repeat);
  void LockIfRepeating();
  void Warn(const std::string& text);

  const Options options_;
  ProcessSetTable sets_;
  Tally tally_;
  CacheIds ids_;
  CapacityMonitor capacity_monitor_;

  uint64_t sequence_ = 0;
  ErrorEpoch error_epoch_;      // invariant 3
  std::vector<uint64_t> seen_;  // by rank
  std::vector<bool> left_;      // by rank
  int num_left_ = 0;
  bool goodbye_sent_ = false;
  Status fatal_;          // why no more agreement is possible
  bool stalled_ = false;  // because of the stall limit
  double first_left_at_ = 0.0;
  double next_stall_check_ = 0.0;
  StepDetector detector_;
  LockSettings lock_settings_;
  uint64_t locked_at_ = 0;  // invariant 6: the sequence number of the last lock
  bool locked_ = false;     // no rank has reported its end since
  LivenessProbe liveness_probe_;
  std::string warning_;

  Outbox outbox_;  // the messages that Step sends
};

}  // namespace tfhvd
