// ElasticJob: the collectives of this process while other processes of the job are lost. Kernels
// submit to it as they would to an engine; each generation of members has an engine of its own.
//
// Where a rank is lost, an entry that waits goes on waiting. Once the membership has a roster of
// the survivors, the old engine is abandoned, and all of them tell each other what they wait for
// and what they have (ledger.h). What a survivor has the others get a copy of, to the bit; the rest
// is done anew among the survivors. So no entry fails, and no kernel is told of the loss.
//
// Only entries of all ranks (process set 0) in host memory are so kept. Others fail as they do in a
// job of fixed size; so does a broadcast whose root is lost and of which no survivor has a copy,
// once all survivors have come to it, and an alltoall or a reducescatter that some survivors have
// done and others have not.
//
// Of what is on an accelerator nobody knows whether it was done: an entry is over before its result
// is there. A job that has such entries, on any rank, goes by commits: where a rank is lost, all
// entries of all survivors fail, and so do those that come, until the program says on each rank
// that it has gone back to a state that it has kept (GoBack).
//
// A process that was not there from the start waits for a roster that it is in (`engine`: null),
// and takes over what the others have counted. It is let in where all the others have come to one
// point of their program, and nothing is under way: the program's own protocol
// (tfhvd/ops/admission.py). So does one that was, if a rank was lost before all had met.
//
// Any thread, but the destructor. `done` of entries is called without a lock held.
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
#include "cc/elastic/kept_entries.h"
#include "cc/elastic/kept_entry.h"
#include "cc/elastic/ledger.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"
#include "cc/memory/block_cache.h"

namespace tfhvd {

class ElasticJob {
 public:
  // What all members of a generation do together once they can talk, before their engine takes
  // entries.
  using Reconcile = std::function<Status(Communicator* everyone)>;
  // Makes the engine of a roster. Collective over its members. `monitor`: asked in every wait. Not
  // ok: a member is lost already, and a later roster follows.
  using Open = std::function<Status(const Roster& roster, WaitMonitor* monitor,
                                    const Reconcile& reconcile, std::shared_ptr<Engine>* engine)>;

  // `engine`: that of `roster`; null where this process is to join later, and the roster's
  // generation is -1; its members are those that were started together with it, if it was with any.
  // The membership outlives this object. `limit`: how long entries wait for a roster after
  // something has failed; then they fail with that.
  ElasticJob(Roster roster, std::shared_ptr<Engine> engine, Membership* membership, Open open,
             Log log, std::chrono::nanoseconds limit, Failpoints failpoints = {});
  ~ElasticJob();
  ElasticJob(const ElasticJob&) = delete;
  ElasticJob& operator=(const ElasticJob&) = delete;

  // As Engine's.
  EntryId Submit(Entry&& entry);
  void Cancel(EntryId id);

  // The latest engine; while there is none, the one before. Null: this process has not been let in.
  std::shared_ptr<Engine> engine() const;
  int generation() const;
  int admitted() const;
  // How many processes wait to be let in.
  int waiting() const { return membership_->waiting(); }
  // Waits, at most for so long, for a generation after this one; the latest. nullopt: none will
  // come.
  std::optional<int> WaitForGeneration(int generation, std::chrono::nanoseconds most) const;

  // Waits, at most for so long, until no entry is under way; whether none is.
  bool WaitUntilIdle(std::chrono::nanoseconds most) const;

  // Entries are taken again, where they are refused because the program was to go back to a state
  // that it has kept; now it does. Waits, at most for so long, until there is an engine for them;
  // its generation. nullopt: there is none.
  std::optional<int> GoBack(std::chrono::nanoseconds most);

  // From now on no rank is replaced: this process leaves. Entries that wait for a roster fail.
  void Stop();

 private:
  using KeptPtr = KeptEntry::Pointer;

  void Run();
  void GiveUpIfNew() TFHVD_EXCLUDES(mutex_);
  Status TakeUp(const Roster& roster) TFHVD_EXCLUDES(mutex_);
  Status ReconcileWith(const Roster& before, const Roster& roster, Communicator* everyone)
      TFHVD_EXCLUDES(mutex_);
  Status ShareCountsWith(const Roster& before, Communicator* everyone) TFHVD_EXCLUDES(mutex_);
  void FailUntilGoneBack(int generation) TFHVD_EXCLUDES(mutex_);
  Position OwnPosition(bool lost_some) TFHVD_EXCLUDES(mutex_);
  void CatchUp(int64_t barriers) TFHVD_EXCLUDES(mutex_);
  Status Fetch(const Turn& turn, char* data) TFHVD_EXCLUDES(mutex_);
  void Take(const Outcome& outcome, const char* data) TFHVD_EXCLUDES(mutex_);
  void Resubmit(const std::shared_ptr<Engine>& engine) TFHVD_EXCLUDES(mutex_);
  void SubmitTo(Engine* engine, EntryId number) TFHVD_EXCLUDES(mutex_);
  Entry Give(EntryId number, KeptEntry* kept) TFHVD_REQUIRES(mutex_);
  KeptEntry::Callbacks CallbacksOf(EntryId number);
  KeptPtr Remove(EntryId number) TFHVD_REQUIRES(mutex_);
  void OnDone(EntryId number, const Status& status) TFHVD_EXCLUDES(mutex_);
  void LetGoBy(Engine* engine);
  void NoteOutcome(EntryId number, KeptEntry* kept, const Status& status) TFHVD_REQUIRES(mutex_);
  void FailAll(const std::function<bool(const KeptEntry&)>& which, const Status& why)
      TFHVD_EXCLUDES(mutex_);

  Membership* const membership_;  // Not owned.
  const Open open_;
  const Log log_;
  const std::chrono::nanoseconds limit_;
  const Failpoints failpoints_;

  BlockCache blocks_;  // of entries

  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable CondVar idle_;  // its own: steps are to wake nobody who waits for other members
  std::shared_ptr<Engine> engine_ TFHVD_GUARDED_BY(mutex_);
  Roster roster_ TFHVD_GUARDED_BY(mutex_);
  bool takes_entries_ TFHVD_GUARDED_BY(mutex_) = true;  // engine_ does
  bool stopped_ TFHVD_GUARDED_BY(mutex_) = false;
  bool by_commits_ TFHVD_GUARDED_BY(mutex_) = false;  // some rank has had entries on accelerators
  Status refusal_ TFHVD_GUARDED_BY(mutex_);           // of entries until GoBack; ok: none is
  int goes_back_from_ TFHVD_GUARDED_BY(mutex_) = 0;   // the generation that did so last
  EntryId next_ TFHVD_GUARDED_BY(mutex_) = 1;
  KeptEntries kept_ TFHVD_GUARDED_BY(mutex_);  // from Submit to their `done`
  Ledger ledger_ TFHVD_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace tfhvd
