// Observer: is told how entries come along, from submission to completion. A listener (observe/)
// implements it. The caller asks on() first, which is one relaxed load; calls while it is false are
// ignored.
//
// Any thread.
#pragma once

#include <atomic>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/flow/entry.h"
#include "cc/flow/metrics.h"
#include "cc/flow/plan.h"
#include "cc/flow/request.h"

namespace tfhvd {

class Observer {
 public:
  virtual ~Observer() = default;

  bool on() const { return on_.load(std::memory_order_relaxed); }

  // Whether to call RankReady and TallyOver, for each tensor and rank.
  virtual bool wants_ranks() const { return on(); }

  // Has an id, and waits for the other ranks from now on. One thread at a time.
  virtual void Submitted(const Entry& entry) = 0;

  // `rank` is known here to be ready for the collective: it has announced it to this rank's
  // coordinator or, `voted`, cast its vote for it in a locked step.
  virtual void RankReady(const Key& key, Collective kind, int rank, bool voted) = 0;

  // This rank's coordinator waits for nobody any more who is to announce `key`.
  virtual void TallyOver(const Key& key) = 0;

  // The entry waits for `rank`, which was not ready when this rank was: the only such rank, or
  // kSeveralRanks. Where ranks vote that is told when the wait begins, else with the agreement that
  // ends it, and then `rank` is the one that came last.
  virtual void WaitedFor(EntryId entry, int rank) = 0;

  // These are to be executed, one after the other, from now on.
  virtual void AgreedOn(const std::vector<Agreed>& together) = 0;

  // A phase of their execution: what carries it ("shm", or "") and what it is ("_ALLREDUCE",
  // "MEMCPY_IN_FUSION_BUFFER"), both for as long as the process lives. Phases nest.
  virtual void Begin(const std::vector<EntryId>& entries, const char* carrier,
                     const char* call) = 0;
  virtual void End(const std::vector<EntryId>& entries) = 0;

  // `done` of the entry is called next.
  virtual void Done(EntryId entry, const Status& status) = 0;

  // The coordinator is told of an entry: by its number where it is `known`, or else in full.
  virtual void Announced(bool /*known*/) {}

  // One call carries what is in `plan`.
  virtual void Carries(const Plan& /*plan*/) {}

  // A step is locked; a bucket of it runs, as all have voted to commit; it is unlocked.
  virtual void StepLocked() {}
  virtual void BucketRuns() {}
  virtual void StepUnlocked(UnlockReason /*why*/) {}

  // A thread that submits runs the bucket that it has completed.
  virtual void RunsInline() {}

  // This rank, ready itself, has waited so long until `rank` was ready, the last of all, or
  // kSeveralRanks where it cannot tell who was the last. No time is told of twice.
  virtual void Waited(int /*rank*/, double /*seconds*/) {}

 protected:
  std::atomic<bool> on_{false};
};

constexpr int kSeveralRanks = -2;

}  // namespace tfhvd
