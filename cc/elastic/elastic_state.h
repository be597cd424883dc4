// ElasticState: the entries of an elastic job on this rank, their results, and who takes them.
//
// Owned by ElasticJob; shared with Reconciler. Any thread; each field under the lock.
#pragma once

#include <functional>
#include <memory>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/elastic/ledger.h"
#include "cc/elastic/retained_entries.h"
#include "cc/elastic/retained_entry.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"

namespace tfhvd {

struct ElasticState {
  using RetainedPtr = RetainedEntry::Pointer;

  ElasticState(Roster members, std::shared_ptr<Engine> taker)
      : engine(std::move(taker)), roster(std::move(members)) {}

  // Removes the entry, which is over: the caller completes it without the lock.
  RetainedPtr Remove(EntryId number) TFHVD_REQUIRES(mutex);

  // Keeps the entry's result for other ranks, if one may ask for it.
  void NoteResult(EntryId number, RetainedEntry* entry, const Status& status) TFHVD_REQUIRES(mutex);

  // Removes and fails the entries of which `which` is true: with the error of each, or else `why`.
  void FailAll(const std::function<bool(const RetainedEntry&)>& which, const Status& why)
      TFHVD_EXCLUDES(mutex);

  mutable Mutex mutex;
  mutable CondVar changed;
  mutable CondVar idle;  // separate, so that steps wake only its waiters
  std::shared_ptr<Engine> engine TFHVD_GUARDED_BY(mutex);
  Roster roster TFHVD_GUARDED_BY(mutex);
  bool takes_entries TFHVD_GUARDED_BY(mutex) = true;  // whether `engine` takes entries
  bool stopped TFHVD_GUARDED_BY(mutex) = false;
  bool by_commits TFHVD_GUARDED_BY(mutex) = false;  // some rank has had entries on accelerators
  Status refusal TFHVD_GUARDED_BY(mutex);  // of entries until RollBack; ok: entries are taken
  int rolls_back_from TFHVD_GUARDED_BY(mutex) = 0;  // the last generation that rolled back
  EntryId next TFHVD_GUARDED_BY(mutex) = 1;
  RetainedEntries kept TFHVD_GUARDED_BY(mutex);  // from Submit to their `done`
  Ledger ledger TFHVD_GUARDED_BY(mutex);
};

}  // namespace tfhvd
