// The steps that the members of a new generation take together before their engine takes entries.
#include <string>
#include <unordered_map>
#include <utility>

#include "cc/elastic/elastic_job.h"
#include "cc/elastic/later_generation.h"
#include "cc/elastic/roster_change.h"
#include "cc/elastic/share_outcomes.h"

namespace tfhvd {

Status ElasticJob::ReconcileWith(const Roster& before, const Roster& roster,
                                 Communicator* everyone) {
  const RosterChange change = Compare(before, roster);
  Shared shared;
  TFHVD_RETURN_IF_ERROR(ShareOutcomes(
      OwnPosition(!change.lost.empty()), everyone, [this](int64_t barriers) { CatchUp(barriers); },
      [this](const Turn& turn, char* data) { return Fetch(turn, data); },
      [this](const Outcome& outcome, const char* data) { Take(outcome, data); }, failpoints_,
      &shared));
  if (shared.go_back) FailUntilGoneBack(roster.generation);
  if (shared.some_are_new) TFHVD_RETURN_IF_ERROR(ShareCountsWith(before, everyone));
  failpoints_.Pass(Failpoint::kReconciled);
  // Every rank has now done the same collectives. All ranks do the remaining ones together.
  {
    const MutexLock lock(&mutex_);
    kept_.ForEach([&](KeptEntry* kept) { kept->RenumberRoot(before, roster); });
  }
  if (roster.rank == 0) {
    const std::string text = Describe(change, roster);
    if (change.lost.empty()) {
      log_.Info(text);
    } else if (shared.go_back) {
      log_.Warning(text + " It has collectives on GPUs: it continues from its last commit.");
    } else {
      log_.Warning(text + " Results that ranks got from others: " + std::to_string(shared.copied));
    }
  }
  return Status::Ok();
}

// No engine has an entry. Ranks may have done different collectives, so all ranks start to count
// from zero.
void ElasticJob::FailUntilGoneBack(int generation) {
  const Status why = GoesOnFromCommit();
  {
    const MutexLock lock(&mutex_);
    by_commits_ = true;
    refusal_ = why;
    goes_back_from_ = generation;
    ledger_ = Ledger();
    kept_.ForEach([&why](KeptEntry* kept) { kept->why = why; });
  }
  FailAll([](const KeptEntry&) { return true; }, why);
}

// If no rank has counts, a rank failed before the first generation was complete, and no collective
// was done. This is an error for a process that joined later, which needs the counts of some other
// rank.
Status ElasticJob::ShareCountsWith(const Roster& before, Communicator* everyone) {
  std::string own;
  {
    const MutexLock lock(&mutex_);
    if (engine_ != nullptr) own = ledger_.EncodeCounts();
  }
  std::string counts;
  failpoints_.Pass(Failpoint::kCountsSharing);
  TFHVD_RETURN_IF_ERROR(ShareCounts(own, everyone, &counts));
  failpoints_.Pass(Failpoint::kCountsShared);
  if (counts.empty()) {
    return before.size() > 0
               ? Status::Ok()
               : Status::FailedPrecondition("all ranks that had taken part in the job are lost");
  }
  if (!own.empty()) return Status::Ok();
  const MutexLock lock(&mutex_);
  return ledger_.TakeOverCounts(counts);
}

Position ElasticJob::OwnPosition(bool lost_some) {
  Position position;
  position.lost_some = lost_some;
  const MutexLock lock(&mutex_);
  position.barriers = ledger_.barriers();
  position.is_new = engine_ == nullptr;
  position.by_commits = by_commits_;
  std::unordered_map<std::string, int64_t> counts;
  const auto survives = [](const KeptEntry& kept) { return kept.survives(); };
  for (EntryId next = kept_.NextAfter(0, survives); next != 0;
       next = kept_.NextAfter(next, survives)) {
    const std::string& name = kept_.Find(next)->request().key.name;
    position.waits.push_back(ledger_.TurnOf(name, counts[name]++));
  }
  for (const Ledger::Result& result : ledger_.results()) position.has.push_back(result.outcome());
  return position;
}

void ElasticJob::CatchUp(int64_t barriers) {
  const MutexLock lock(&mutex_);
  ledger_.CatchUp(barriers);
}

Status ElasticJob::Fetch(const Turn& turn, char* data) {
  const MutexLock lock(&mutex_);
  const Ledger::Result* const result = ledger_.Find(turn);
  if (result == nullptr) return Status::Internal("a result is gone that others wait for");
  result->CopyTo(data);
  return Status::Ok();
}

// Completes the entry that waits for this outcome, if there is one. No engine has that entry.
void ElasticJob::Take(const Outcome& outcome, const char* data) {
  EntryId number = 0;
  KeptPtr over;
  {
    const MutexLock lock(&mutex_);
    // Entries of one name complete in order, so the first waiting entry of this name is the next
    // one.
    number = kept_.NextAfter(0, [&outcome](const KeptEntry& kept) {
      return kept.survives() && kept.request().key.name == outcome.turn.name;
    });
    if (number == 0 || !(ledger_.TurnOf(outcome.turn.name, 0) == outcome.turn)) return;
    over = Remove(number);
  }
  const Status status = over->TakeCopy(outcome, data);
  {
    const MutexLock lock(&mutex_);
    NoteOutcome(number, over.get(), status);
  }
  over->entry.done(status);
}

}  // namespace tfhvd
