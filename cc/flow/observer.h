// Observer: learns of the progress of entries, from submission to completion. A listener (observe/)
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

  // Returns whether to call RankReady and TallyOver, for each tensor and rank.
  virtual bool wants_ranks() const { return on(); }

  // The entry has an id, and waits for the other ranks from now on. One thread at a time.
  virtual void Submitted(const Entry& entry) = 0;

  // This process knows that `rank` is ready for the collective: the rank has announced it to this
  // rank's coordinator or, `voted`, cast its vote for it in a locked step.
  virtual void RankReady(const Key& key, Collective kind, int rank, bool voted) = 0;

  // This rank's coordinator no longer waits for announcements of `key`.
  virtual void TallyOver(const Key& key) = 0;

  // The entry waits for `rank`, the only rank that was not ready when this rank was; kSeveralRanks
  // if there are more. If ranks vote, called when the wait begins; otherwise with the agreement
  // that ends the wait, and then `rank` is the one that was ready last.
  virtual void WaitedFor(EntryId entry, int rank) = 0;

  // These entries are executed, one after the other, from now on.
  virtual void AgreedOn(const std::vector<Agreed>& together) = 0;

  // A phase of their execution: the transport ("shm", or "") and the call ("_ALLREDUCE",
  // "MEMCPY_IN_FUSION_BUFFER"), two texts that live as long as the process. Phases nest.
  virtual void Begin(const std::vector<EntryId>& entries, const char* carrier,
                     const char* call) = 0;
  virtual void End(const std::vector<EntryId>& entries) = 0;

  // `done` of the entry is called next.
  virtual void Done(EntryId entry, const Status& status) = 0;

  // This rank announces an entry to the coordinator: by its number if it is `known`, otherwise in
  // full.
  virtual void Announced(bool /*known*/) {}

  // One call carries the pieces of `plan`.
  virtual void Carries(const Plan& /*plan*/) {}

  // A step is locked; one of its buckets runs, because all have voted to commit; it is unlocked.
  virtual void StepLocked() {}
  virtual void BucketRuns() {}
  virtual void StepUnlocked(UnlockReason /*why*/) {}

  // A submitting thread runs the bucket that it has completed.
  virtual void RunsInline() {}

  // This rank was ready and has waited until `rank`, the last of all, was ready; kSeveralRanks if
  // this rank cannot tell which was the last. No time is reported twice.
  virtual void Waited(int /*rank*/, double /*seconds*/) {}

 protected:
  std::atomic<bool> on_{false};
};

constexpr int kSeveralRanks = -2;

}  // namespace tfhvd
