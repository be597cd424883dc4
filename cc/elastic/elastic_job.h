// ElasticJob: the collectives of this process when other processes of the job fail. Kernels submit
// to it as they would to an engine; each generation of members has a separate engine.
//
// When a rank fails, pending entries keep waiting. As soon as the membership has a roster of the
// survivors, each abandons its old engine and tells the others which results it waits for and which
// it has (ledger.h). A result that some survivor has is copied to the others, to the bit; the
// survivors do the remaining collectives again. So no entry fails, and no kernel learns of the
// failure.
//
// This holds only for entries of all ranks (process set 0) in host memory. Others fail as they do
// in a job of fixed size, and so do a broadcast whose root has failed and of which no survivor has
// a copy, once all survivors have called it; and an alltoall or a reducescatter that only some
// survivors have done.
//
// For tensors on an accelerator no rank knows whether a collective was done, because an entry is
// over before its result exists. A job that has such entries, on any rank, goes by commits: when a
// rank fails, all entries of all survivors fail, and so do later ones, until the program on each
// rank reports that it has returned to a state that it had saved (RollBack).
//
// A process that joins later waits for a roster that contains it (`engine`: null), and takes over
// the others' counts. The others admit it when all of them have reached one point of their program
// and no entry is pending; that is the program's protocol (tfhvd/ops/admission.py). If a rank fails
// before the first engine exists, the others wait for a roster in the same way.
//
// The steps that the members of a new generation take together are Reconciler's; both work on one
// ElasticState.
//
// Any thread, except the destructor. Calls `done` of entries without holding a lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/base/log.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/membership.h"
#include "cc/comm/wait_monitor.h"
#include "cc/elastic/elastic_state.h"
#include "cc/elastic/retained_entry.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"
#include "cc/memory/block_cache.h"

namespace tfhvd {

class ElasticJob {
 public:
  // The steps that all members of a generation take together when they are connected, before their
  // engine takes entries.
  using Reconcile = std::function<Status(Communicator* everyone)>;
  // Makes the engine of a roster. Collective over its members. `monitor`: called in every wait. An
  // error means that a member has failed already, and a later roster follows.
  using Open = std::function<Status(const Roster& roster, WaitMonitor* monitor,
                                    const Reconcile& reconcile, std::shared_ptr<Engine>* engine)>;

  // `engine`: the engine of `roster`. Null if this process joins later: then the roster's
  // generation is -1, and its members are the processes that were started together with it, if any.
  // The membership must outlive this object. `limit`: how long entries wait for a roster after a
  // failure; then they fail with it.
  ElasticJob(Roster roster, std::shared_ptr<Engine> engine, Membership* membership, Open open,
             Log log, std::chrono::nanoseconds limit, Failpoints failpoints = {});
  ~ElasticJob();
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;

  // See Engine.
  EntryId Submit(Entry&& entry);
  void Cancel(EntryId id);

  // Returns the latest engine, also while its successor is being made; null if this process has not
  // been admitted.
  std::shared_ptr<Engine> engine() const;
  int generation() const;
  int admitted() const;
  // Returns how many processes wait for admission.
  int waiting() const { return membership_->waiting(); }
  // Waits at most `most` for a generation after `generation`, and returns the latest; nullopt if
  // none will come.
  std::optional<int> WaitForGeneration(int generation, std::chrono::nanoseconds most) const;

  // Waits at most `most` until no entry is pending; returns whether none is.
  bool WaitUntilIdle(std::chrono::nanoseconds most) const;

  // Takes entries again after a failure in a job that goes by commits: the program calls this when
  // it returns to a saved state. Waits at most `most` for an engine, and returns its generation;
  // nullopt if there is none.
  std::optional<int> RollBack(std::chrono::nanoseconds most);

  // Ends the replacement of engines: this process leaves. Entries that wait for a roster fail.
  void Stop();

 private:
  using RetainedPtr = ElasticState::RetainedPtr;

  void Run();
  void GiveUpIfNew() TFHVD_EXCLUDES(state_.mutex);
  Status AdoptGeneration(const Roster& roster) TFHVD_EXCLUDES(state_.mutex);
  void Resubmit(const std::shared_ptr<Engine>& engine) TFHVD_EXCLUDES(state_.mutex);
  void SubmitTo(Engine* engine, EntryId number) TFHVD_EXCLUDES(state_.mutex);
  Entry Give(EntryId number, RetainedEntry* kept) TFHVD_REQUIRES(state_.mutex);
  RetainedEntry::Callbacks CallbacksOf(EntryId number);
  void OnDone(EntryId number, const Status& status) TFHVD_EXCLUDES(state_.mutex);
  void LetGoBy(Engine* engine);

  Membership* const membership_;  // Not owned.
  const Open open_;
  const Log log_;
  const std::chrono::nanoseconds limit_;
  const Failpoints failpoints_;

  BlockCache blocks_;  // of entries

  ElasticState state_;

  std::thread thread_;
};

}  // namespace tfhvd
