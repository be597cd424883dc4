// Negotiator: one rank's part in the negotiation by messages. Entries go in; they come out, moved,
// agreed on by every rank and in an order that is the same on every rank, or failed. What is not
// agreed yet stays inside. Where the coordinator locks a step that repeats, what is pending goes
// elsewhere (engine/consensus.h), until the step is unlocked.
//
// Every rank has one, rank 0 too: a client of the coordinator (coordinator_server.h). Used by the
// engine's thread only.
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
  // What a Step has brought about, in this order of events.
  struct Outcome {
    // In the order of execution, one for each agreement, however many a rank takes in one step.
    std::vector<Together> agreed;
    std::vector<std::pair<Entry, Status>> failed;
    bool progress = false;  // a message came or went
  };

  // `sets` and `channel`, by which rank 0 is reached (on rank 0: the loopback), must outlive this
  // object.
  Negotiator(const Config& config, const Log& log, const Topology& topology,
             const ProcessSetTable* sets, MessageChannel* channel)
      : config_(config), log_(log), topology_(topology), sets_(sets), channel_(channel) {}

  // Who is told how entries are announced; not owned, may be null.
  void SetObserver(Observer* observer) {
    observer_ = observer;
    pending_.SetObserver(observer);
  }

  // REQUIRES, of both: no step is locked.
  void Add(Entry&& entry, double now, Outcome* outcome);
  void Cancel(EntryId id, Outcome* outcome);
  void Leave(const std::string& reason);

  // Fails an entry whose name is in flight already.
  void RefuseSecond(Entry&& entry, Outcome* outcome) const;

  // Says what is new to the coordinator and takes what has arrived. An error means that the job is
  // lost.
  Status Step(double now, Outcome* outcome);

  // What is to be done while the engine waits in `what`, for `waited` seconds by now: takes
  // what has arrived and keeps it for Step, answers the coordinator, and tells it of the wait. An
  // error means that the job is lost.
  Status OnWait(const std::string& what, double waited, double now);

  // Tells the coordinator that this rank has waited for so long for others in `what`, where it has
  // not done so of late; finds out whether the coordinator itself is missing. Part of OnWait.
  Status ReportWait(const std::string& what, double waited, double now);

  // Takes what has arrived and keeps it for Step; whether there is anything that Step has to do.
  // REQUIRES: a step is locked, so that nothing is to be announced.
  Status Poll(double now, bool* anything);

  // Whether another rank has sent an alarm, to this rank and to the others: the job is lost.
  bool alarmed() const { return alarmed_; }

  // The step that the coordinator has locked, once: from here on it is for others to run it. Null
  // where none is to begin.
  std::shared_ptr<const LockedStep> TakeLocked() { return std::exchange(to_begin_, nullptr); }
  // Whether a step is locked: what is sent then is only that this rank runs.
  bool locked() const { return locked_; }
  // It ended after so many rounds; `late`: a bucket did not fill. `step_seconds`: how long its
  // steps took, 0 where too few ran.
  void Unlock(int64_t rounds, bool late, double step_seconds, double now);
  // Whether it has something to say that no locked step outlasts.
  bool has_news() const { return !next_.empty(); }

  // Takes out everything that is pending, in order of submission.
  std::vector<Entry> TakeAll() { return pending_.TakeAll(); }

  // Whether a message is expected, so that a control plane that cannot wake should be polled
  // keenly.
  bool expecting() const;
  // Whether nothing that was added waits for its decision.
  bool idle() const { return pending_.empty(); }
  // When Step has something to do though nothing arrives.
  double wake_at(double now) const;
  // Whether this rank has left.
  bool left() const { return left_; }
  // Every rank has left: nothing will come any more.
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
  // Whether the coordinator waits to be told that this rank has seen an agreement.
  bool confirm_owed() const { return said_seen_ < to_confirm_; }

  const Config config_;
  const Log& log_;
  const Topology& topology_;
  const ProcessSetTable* const sets_;  // Not owned.
  MessageChannel* const channel_;      // Not owned.
  Observer* observer_ = nullptr;       // Not owned.
  std::deque<Agreement> arrived_;      // what Step has not taken yet
  bool alarmed_ = false;

  Announcement next_;  // what has not been sent to the coordinator yet
  PendingEntries pending_{&next_};

  bool locked_ = false;
  std::shared_ptr<const LockedStep> to_begin_;
  uint64_t seen_ = 0;
  uint64_t said_seen_ = 0;    // of it, what was sent to the coordinator
  uint64_t to_confirm_ = 0;   // of it, the last that the coordinator wants to be told of
  bool answer_owed_ = false;  // the coordinator asked for a sign of life, which any message is
  bool left_ = false;
  bool over_ = false;
  double now_ = 0.0;            // of the step under way
  double last_received_ = 0.0;  // of the coordinator
  double waiting_at_ = 0.0;     // when ReportWait was last told of a wait
  double wait_reported_ = 0.0;  // when a wait was last reported to the coordinator
  bool missing_reported_ = false;
};

}  // namespace tfhvd
