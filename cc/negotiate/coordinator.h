// Coordinator: the part of the negotiation that runs on rank 0. It counts who announced what,
// decides what is ready everywhere and in which order everyone executes it, gives out cache ids,
// knows the process sets and who has joined, and notices ranks that leave or stay away.
// Announcements go in, Agreements come out; it sends nothing itself and reads no clock.
//
// Invariants:
//  1. There is one order of all items. Every rank gets those of its process sets in this order,
//     except failures, which go to those who announced.
//  2. A rank has at most one open announcement per key: it announces a key again only after the
//     key's decision, or after its withdrawal was confirmed.
//  3. After a decision with an error nothing more is agreed until every rank that it went to has
//     said that it saw it. A failed operation makes a framework cancel others of the same step;
//     their withdrawals arrive with or before that word, so that a cancelled tensor never meets
//     the next step's tensor of another rank.
//  4. Evicted ids: see CacheIds.
//  5. A rank that has joined a process set is not waited for there, and in no set once it has
//     joined set 0: what all the others have announced is complete, and the joined rank gets it as
//     a placeholder. Once every rank of the set has joined it, none has.
//  6. With the agreement that locks a step all open tallies are void, on the ranks too; what
//     was announced before a rank has seen that agreement is not counted.
//
// What it decides from is in parts of their own: who announced what (tally.h), the numbers
// (cache_ids.h), the process sets (process_set_rules.h), failures that are not confirmed
// (error_epoch.h), ranks that are slow or gone (stall_report.h, roll_call.h) and steps that repeat
// (step_detector.h).
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
#include "cc/negotiate/lock_settings.h"
#include "cc/negotiate/outbox.h"
#include "cc/negotiate/roll_call.h"
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

  // Who is told when ranks are ready; not owned, may be null.
  void SetObserver(Observer* observer) { tally_.SetObserver(observer); }
  void WaitsFrom(double now) { tally_.WaitsFrom(now); }  // see Tally

  // REQUIRES: 0 <= from < size.
  Status Take(int from, Announcement announcement, double now);

  // What is to be sent now, as (rank, agreement), at most one a rank.
  std::vector<std::pair<int, SharedAgreement>> Step(double now);

  // The warnings about stalled tensors, missing ranks or lacking numbers that Step came to since
  // the last call, or "".
  std::string TakeWarning() { return std::exchange(warning_, {}); }

  // What has been found of the settings of steps since the last call.
  std::vector<Tuner::News> TakeTuning() { return lock_settings_.TakeNews(); }

  // Not ok: the job is lost, for ranks that others wait for do not answer (roll_call.h), or do not
  // leave soon though it has stalled for too long, and others have left.
  Status lost(double now) const;

  // Whether a rank has yet to leave. Who has left may end as soon as all have.
  bool awaits_leave_of(int rank) const { return !left_[static_cast<size_t>(rank)]; }

  // When Step has something to do though nothing arrives; a time in the past means now.
  double wake_at() const;

  // Whether some rank waits for another.
  bool waiting() const { return tally_.open() > 0 || tally_.complete() > 0; }

 private:
  int size() const { return static_cast<int>(options_.hosts.size()); }

  // What arrives.
  Slot* SlotOf(const Key& key);
  Status TakeAnnounced(int from, Announcement* announcement, double now);
  Status CheckAnnounced(const Slot& slot, int rank) const;
  bool FailIfLost(Slot* slot);
  void Refuse(int rank, const Key& key);
  void Withdraw(int rank, const Key& key);

  // Failures and ends.
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

  // Ranks that are slow, and steps that repeat.
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
  Status fatal_;          // why nothing can be agreed any more
  bool stalled_ = false;  // that is because of the stall limit
  double first_left_at_ = 0.0;
  double next_stall_check_ = 0.0;
  StepDetector detector_;
  LockSettings lock_settings_;
  uint64_t locked_at_ = 0;  // invariant 6: the sequence number of the last lock
  bool locked_ = false;     // no rank has said since that it has ended
  RollCall roll_call_;
  std::string warning_;

  Outbox outbox_;  // what Step is to send
};

}  // namespace tfhvd
