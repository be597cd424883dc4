// Negotiator: one rank's part in the negotiation by messages. Entries go in; they come out (moved)
// either agreed on by every rank, in an order that is the same on every rank, or failed. Undecided
// entries stay inside. When the coordinator locks a repeating step, pending entries move on
// (engine/consensus.h), until the step is unlocked.
//
// Every rank has a negotiator, rank 0 too: a client of the coordinator (coordinator_server.h). Used
// by the engine's thread only.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/comm/message_channel.h"
#include "cc/comm/topology.h"
#include "cc/flow/locked_step.h"
#include "cc/flow/messages.h"
#include "cc/flow/observer.h"
#include "cc/flow/plan.h"
#include "cc/flow/process_set_table.h"
#include "cc/negotiate/pending_entries.h"
#include "cc/negotiate/response_cache.h"

namespace tfhvd {

class Negotiator {
 public:
  // The results of a Step, in the order of events.
  struct Outcome {
    // In the order of execution, one element for each agreement; a step may take several
    // agreements.
    std::vector<Together> agreed;
    std::vector<std::pair<Entry, Status>> failed;
    bool progress = false;  // a message came or went
  };

  // `sets` and `channel`, the way to rank 0 (on rank 0: the loopback), must outlive this object.
  Negotiator(const Config& config, const Log& log, const Topology& topology,
             const ProcessSetTable* sets, MessageChannel* channel)
      : config_(config), log_(log), topology_(topology), sets_(sets), channel_(channel) {}

  // The observer learns how entries are announced; not owned, may be null.
  void SetObserver(Observer* observer) {
    observer_ = observer;
    pending_.SetObserver(observer);
  }

  // REQUIRES, for both: no step is locked.
  void Add(Entry&& entry, double now, Outcome* outcome);
  void Cancel(EntryId id, Outcome* outcome);
  void Leave(const std::string& reason);

  // Fails an entry whose name is in flight already.
  void RefuseSecond(Entry&& entry, Outcome* outcome) const;

  // Sends news to the coordinator and takes the messages that have arrived. An error means that the
  // job has failed.
  Status Step(double now, Outcome* outcome);

  // Called while the engine waits in `what`, for `waited` seconds so far: keeps the messages that
  // have arrived for Step, answers the coordinator, and reports the wait to it. An error means that
  // the job has failed.
  Status OnWait(const std::string& what, double waited, double now);

  // Tells the coordinator that this rank has waited for others in `what`, unless it has done so
  // recently; finds out whether the coordinator itself is missing. Part of OnWait.
  Status ReportWait(const std::string& what, double waited, double now);

  // Keeps the messages that have arrived for Step; reports whether Step has work. REQUIRES: a step
  // is locked, so that there is nothing to announce.
  Status Poll(double now, bool* anything);

  // Returns whether another rank has sent an alarm, to this rank and to the others: the job has
  // failed.
  bool alarmed() const { return alarmed_; }

  // Returns, once, the step that the coordinator has locked; from then on the caller must run it.
  // Returns null if there is none to begin.
  std::shared_ptr<const LockedStep> TakeLocked() { return std::exchange(to_begin_, nullptr); }
  // Returns whether a step is locked: then messages only say that this rank runs.
  bool locked() const { return locked_; }
  // Records that the step has ended after `rounds` rounds; `late`: a bucket did not fill.
  // `step_seconds`: the time per step, 0 if too few ran.
  void Unlock(int64_t rounds, bool late, double step_seconds, double now);
  // Returns whether there is news for the coordinator, which ends a locked step.
  bool has_news() const { return !next_.empty(); }

  // Removes and returns all pending entries, in order of submission.
  std::vector<Entry> TakeAll() { return pending_.TakeAll(); }

  // Returns whether a message is expected, so that a control plane that cannot wake should be
  // polled often.
  bool expecting() const;
  // Returns whether no entry waits for its decision.
  bool idle() const { return pending_.empty(); }
  // Returns when Step has work even if nothing arrives.
  double wake_at(double now) const;
  // Returns whether this rank has left.
  bool left() const { return left_; }
  // Returns whether every rank has left: no more messages will arrive.
  bool over() const { return over_; }

 private:
  Status Lock(const Agreement& agreement, Outcome* outcome);
  Status SendAnnouncement();
  Status SendWord(const std::string& what, double waited);
  Status TakeMessages(Outcome* outcome);
  Status TakeAgreement(Agreement agreement, Outcome* outcome);
  Status TakeItem(Agreement::Item item, std::vector<Agreed>* together, Outcome* outcome);
  void TellOfWait(const Entry& entry, int last);
  Status TakeRepeated(CacheId id, std::vector<Agreed>* together);
  Status FindRecord(CacheId id, const ResponseCache::Record** record) const;
  Status FindSubmitted(const Key& key, PendingEntries::Node** pending);
  Status CheckCoordinator(double now);
  // Returns whether the coordinator waits for the confirmation that this rank has seen an
  // agreement.
  bool confirm_owed() const { return said_seen_ < to_confirm_; }

  const Config config_;
  const Log& log_;
  const Topology& topology_;
  const ProcessSetTable* const sets_;  // Not owned.
  MessageChannel* const channel_;      // Not owned.
  Observer* observer_ = nullptr;       // Not owned.
  std::deque<Agreement> arrived_;      // not yet taken by Step
  bool alarmed_ = false;

  Announcement next_;  // not yet sent to the coordinator
  PendingEntries pending_{&next_};

  bool locked_ = false;
  std::shared_ptr<const LockedStep> to_begin_;
  uint64_t seen_ = 0;
  uint64_t said_seen_ = 0;    // the part of seen_ that was sent to the coordinator
  uint64_t to_confirm_ = 0;   // the last agreement that the coordinator wants to be confirmed
  bool answer_owed_ = false;  // the coordinator asked for a sign of life; any message is one
  bool left_ = false;
  bool over_ = false;
  double now_ = 0.0;            // the time of the present step
  double last_received_ = 0.0;  // the time of the coordinator's last message
  double waiting_at_ = 0.0;     // the time of the last call of ReportWait
  double wait_reported_ = 0.0;  // the time of the last report of a wait to the coordinator
  bool missing_reported_ = false;
};

}  // namespace tfhvd
