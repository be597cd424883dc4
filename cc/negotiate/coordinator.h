// Coordinator: the part of the negotiation that runs on rank 0. It counts who announced what,
// decides what is ready everywhere and in which order everyone executes it, gives out cache ids,
// and notices ranks that leave or stay away. Announcements go in, Agreements come out; it sends
// nothing itself and reads no clock.
//
// Invariants:
//  1. Every rank gets the same items in the same order, except failures, which go to those who
//  announced.
//  2. A rank has at most one open announcement per key: it announces a key again only after the
//  key's decision,
//     or after its withdrawal was confirmed.
//  3. After a decision with an error nothing more is agreed until every rank has said that it saw
//  it. A failed
//     operation makes a framework cancel others of the same step; their withdrawals arrive with or
//     before that word, so that a cancelled tensor never meets the next step's tensor of another
//     rank.
//  4. An evicted id can still be announced by ranks that have not seen the eviction; it stays valid
//  until all
//     have, or until its key is decided once more.
//  5. With the agreement that locks a schedule all open tallies are void, on the ranks too; what
//  was announced before a rank has seen that agreement is not counted.
//
// Used by the engine's thread only. Times are in seconds on one monotonic clock.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/negotiate/step_watch.h"

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
    bool may_lock = false;             // whether ranks can vote without messages
  };

  explicit Coordinator(Options options);

  // REQUIRES: 0 <= from < size.
  Status Take(int from, Announcement announcement, double now);

  // What is to be sent now, as (rank, agreement), at most one a rank.
  std::vector<std::pair<int, Agreement>> Step(double now);

  // The schedule that Step sent has ended on rank 0; see StepWatch::Ended.
  void ScheduleEnded(int64_t turns, bool late) { watch_.Ended(turns, late); }

  // When Step has something to do though nothing arrives; a time in the past means now.
  double wake_at() const;

  // Whether some rank waits for another.
  bool waiting() const { return open_ > 0 || !ready_.empty(); }

 private:
  enum class Announced : uint8_t { kNot, kById, kInFull };

  // Everything about one key: the open tally, and what was last agreed.
  struct Slot {
    Key key;
    // The tally.
    int count = 0;
    std::vector<Announced> announced;  // by rank
    std::vector<Request> requests;     // by rank, valid where announced in full; empty if none was
    double since = 0.0;
    uint64_t known_before = 0;  // the last agreement that somebody who announced it had seen
    bool reported = false;
    // What was last agreed; valid if id != kNoId.
    CacheId id = kNoId;
    Request request;  // rank 0's
    Decision decision;
    uint64_t last_used = 0;
    uint64_t evicted_at = 0;  // the sequence number, or 0
  };

  int size() const { return static_cast<int>(options_.hosts.size()); }
  Slot* SlotOf(const Key& key);
  Status Count(Slot* slot, int rank, Announced how, double now);
  Request RequestOf(const Slot& slot, int rank) const;
  void Withdraw(int rank, const Key& key);
  void RankLeft(int rank, const std::string& reason);
  void FailOpen(Slot* slot, const Status& why);
  Status DoomOf(const Slot& slot) const;

  void Decide(Slot* slot, Agreement* common);
  void AssignId(Slot* slot, Agreement* common);
  void ClearTally(Slot* slot);
  void ForgetEvicted();
  void CheckStalls(double now);
  std::string FenceText(double now);
  std::string StallText(const Slot& slot, double now) const;
  bool FenceHolds();
  void Watch(const Slot& slot, bool repeat);
  void ForgetOpen();

  const Options options_;
  std::unordered_map<Key, Slot, KeyHash> slots_;  // addresses of slots are stable
  std::unordered_map<CacheId, Slot*> by_id_;      // into slots_
  std::vector<Slot*> ready_;                      // complete, in order of completion
  double ready_since_ = 0.0;
  int open_ = 0;  // slots with an incomplete, nonempty tally
  int64_t ids_in_use_ = 0;
  CacheId next_id_ = 1;
  std::vector<CacheId> evicted_;  // still valid under invariant 4

  uint64_t sequence_ = 0;
  double fence_since_ = 0.0;
  bool fence_reported_ = false;
  uint64_t fence_ = 0;          // invariant 3; 0: none
  std::vector<uint64_t> seen_;  // by rank
  std::vector<bool> left_;      // by rank
  int num_left_ = 0;
  bool goodbye_sent_ = false;
  Status doom_;  // why nothing can be agreed any more
  double next_stall_check_ = 0.0;
  StepWatch watch_;
  uint64_t locked_at_ = 0;  // invariant 5: the sequence number of the last lock

  std::vector<Agreement> personal_;  // by rank: parts of the next agreement that are for it alone
};

}  // namespace tfhvd
