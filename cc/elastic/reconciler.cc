#include "cc/elastic/reconciler.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "cc/elastic/generation_monitor.h"
#include "cc/elastic/reconcile_results.h"
#include "cc/elastic/roster_change.h"

namespace tfhvd {

Status Reconciler::Run(const Roster& before, const Roster& roster, Communicator* everyone) {
  const RosterChange change = Compare(before, roster);
  Shared shared;
  TFHVD_RETURN_IF_ERROR(ReconcileResults(
      OwnPosition(!change.lost.empty()), everyone, [this](int64_t barriers) { CatchUp(barriers); },
      [this](const CollectiveSeq& seq, char* data) { return Read(seq, data); },
      [this](const ResultRecord& record, const char* data) { Apply(record, data); }, failpoints_,
      &shared));
  if (shared.roll_back) FailUntilRolledBack(roster.generation);
  if (shared.some_are_new) TFHVD_RETURN_IF_ERROR(ShareCountsWith(before, everyone));
  failpoints_.Hit(Failpoint::kReconciled);
  // Every rank has now done the same collectives. All ranks do the remaining ones together.
  {
    const MutexLock lock(&state_->mutex);
    state_->kept.ForEach([&](RetainedEntry* kept) { kept->RenumberRoot(before, roster); });
  }
  if (roster.rank == 0) {
    const std::string text = Describe(change, roster);
    if (change.lost.empty()) {
      log_.Info(text);
    } else if (shared.roll_back) {
      log_.Warning(text + " It has collectives on GPUs: it continues from its last commit.");
    } else {
      log_.Warning(text + " Results that ranks got from others: " + std::to_string(shared.copied));
    }
  }
  return Status::Ok();
}

// No engine has an entry. Ranks may have done different collectives, so all ranks start to count
// from zero.
void Reconciler::FailUntilRolledBack(int generation) {
  const Status why = ContinuesFromCommit();
  {
    const MutexLock lock(&state_->mutex);
    state_->by_commits = true;
    state_->refusal = why;
    state_->rolls_back_from = generation;
    state_->ledger = Ledger();
    state_->kept.ForEach([&why](RetainedEntry* kept) { kept->why = why; });
  }
  state_->FailAll([](const RetainedEntry&) { return true; }, why);
}

// If no rank has counts, a rank failed before the first generation was complete, and no collective
// was done. This is an error for a process that joined later, which needs the counts of some other
// rank.
Status Reconciler::ShareCountsWith(const Roster& before, Communicator* everyone) {
  std::string own;
  {
    const MutexLock lock(&state_->mutex);
    if (state_->engine != nullptr) own = state_->ledger.EncodeCounts();
  }
  std::string counts;
  failpoints_.Hit(Failpoint::kCountsSharing);
  TFHVD_RETURN_IF_ERROR(ShareCounts(own, everyone, &counts));
  failpoints_.Hit(Failpoint::kCountsShared);
  if (counts.empty()) {
    return before.size() > 0
               ? Status::Ok()
               : Status::FailedPrecondition("all ranks that had been in the job have failed");
  }
  if (!own.empty()) return Status::Ok();
  const MutexLock lock(&state_->mutex);
  return state_->ledger.AdoptCounts(counts);
}

Position Reconciler::OwnPosition(bool lost_some) {
  Position position;
  position.lost_some = lost_some;
  const MutexLock lock(&state_->mutex);
  position.barriers = state_->ledger.barriers();
  position.is_new = state_->engine == nullptr;
  position.by_commits = state_->by_commits;
  std::unordered_map<std::string, int64_t> counts;
  const auto survives = [](const RetainedEntry& kept) { return kept.survives(); };
  for (EntryId next = state_->kept.NextAfter(0, survives); next != 0;
       next = state_->kept.NextAfter(next, survives)) {
    const std::string& name = state_->kept.Find(next)->request().key.name;
    position.waits.push_back(state_->ledger.SeqOf(name, counts[name]++));
  }
  for (const Ledger::Result& result : state_->ledger.results())
    position.has.push_back(result.record());
  return position;
}

void Reconciler::CatchUp(int64_t barriers) {
  const MutexLock lock(&state_->mutex);
  state_->ledger.CatchUp(barriers);
}

Status Reconciler::Read(const CollectiveSeq& seq, char* data) {
  const MutexLock lock(&state_->mutex);
  const Ledger::Result* const result = state_->ledger.Find(seq);
  if (result == nullptr) return Status::Internal("a result is gone that others wait for");
  result->CopyTo(data);
  return Status::Ok();
}

// Completes the entry that waits for this record, if there is one. No engine has that entry.
void Reconciler::Apply(const ResultRecord& record, const char* data) {
  EntryId number = 0;
  ElasticState::RetainedPtr over;
  {
    const MutexLock lock(&state_->mutex);
    // Entries of one name complete in order, so the first waiting entry of this name is the next
    // one.
    number = state_->kept.NextAfter(0, [&record](const RetainedEntry& kept) {
      return kept.survives() && kept.request().key.name == record.seq.name;
    });
    if (number == 0 || !(state_->ledger.SeqOf(record.seq.name, 0) == record.seq)) return;
    over = state_->Remove(number);
  }
  const Status status = over->ApplyCopy(record, data);
  {
    const MutexLock lock(&state_->mutex);
    state_->NoteResult(number, over.get(), status);
  }
  over->entry.done(status);
}

}  // namespace tfhvd
