#include "cc/engine/consensus.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tfhvd {

void Consensus::Take(SubmissionQueue::Batch* batch, double now, Outcome* outcome) {
  if (locked()) {
    for (const EntryId id : batch->cancelled) runner_.Cancel(id);
    for (Entry& entry : batch->entries) runner_.Deviate(std::move(entry));
    for (Entry& entry : batch->twice) {
      // If entries are cancelled, the earlier one may be among them.
      if (runner_.cancels()) {
        runner_.Deviate(std::move(entry));
      } else {
        negotiator_.RefuseSecond(std::move(entry), outcome);
      }
    }
    return;
  }
  std::vector<Entry>* const entries = &batch->entries;
  if (!batch->twice.empty()) {  // entries of a step that has ended meanwhile
    std::move(batch->twice.begin(), batch->twice.end(), std::back_inserter(*entries));
    SortById(entries);
  }
  if (!entries->empty()) runner_.EntriesCame(now, negotiator_.idle());
  Negotiate(entries, &batch->cancelled, now, outcome);
}

// Interleaves entries and cancellations: an entry must follow the cancellation of earlier entries,
// one of which may have its name. `entries` is in order of submission.
void Consensus::Negotiate(std::vector<Entry>* entries, std::vector<EntryId>* cancelled, double now,
                          Outcome* outcome) {
  std::sort(cancelled->begin(), cancelled->end());
  auto next = cancelled->begin();
  for (Entry& entry : *entries) {
    for (; next != cancelled->end() && *next < entry.id; ++next) negotiator_.Cancel(*next, outcome);
    negotiator_.Add(std::move(entry), now, outcome);
  }
  for (; next != cancelled->end(); ++next) negotiator_.Cancel(*next, outcome);
}

Status Consensus::Step(double now, Outcome* outcome) {
  RunLocked(now, outcome);
  TFHVD_RETURN_IF_ERROR(negotiator_.Step(now, outcome));
  if (auto step = negotiator_.TakeLocked()) {
    runner_.Begin(std::move(step), negotiator_.TakeAll(), now);
    RunLocked(now, outcome);
  }
  return locked() ? CheckVotes(now) : Status::Ok();
}

// Runs buckets for as long as all ranks have them.
void Consensus::RunLocked(double now, Outcome* outcome) {
  while (locked() && RunBucket(now, outcome)) {
  }
}

// Votes on the next bucket; returns whether the vote was decided. If the step has ended, its
// remaining entries are negotiated.
bool Consensus::RunBucket(double now, Outcome* outcome) {
  std::vector<Agreed> bucket;
  const auto progress = runner_.Run(now, !negotiator_.has_news(), &bucket);
  if (progress == StepRunner::Progress::kWait) return false;
  outcome->progress = true;
  if (progress == StepRunner::Progress::kRan) {
    outcome->agreed.push_back({std::move(bucket), runner_.fusion()});
    return true;
  }
  StepRunner::Rest rest = runner_.TakeRest();
  negotiator_.Unlock(rest.rounds, rest.late, rest.step_seconds, now);
  Negotiate(&rest.entries, &rest.cancelled, now, outcome);
  return true;
}

bool Consensus::StepOneBucket(double now, Outcome* outcome) {
  return !RunBucket(now, outcome) && runner_.voted();
}

Status Consensus::CheckVotes(double now) {
  if (!runner_.missing_votes()) return Status::Ok();
  TFHVD_RETURN_IF_ERROR(negotiator_.ReportWait(runner_.doing(), runner_.waited(now), now));
  return runner_.CheckVotes(now);
}

std::vector<Entry> Consensus::TakeAll() {
  std::vector<Entry> all = negotiator_.TakeAll();
  runner_.TakeAll(&all);
  return all;
}

double Consensus::wake_at(double now) const {
  if (!locked()) return negotiator_.wake_at(now);
  return negotiator_.has_news() && !runner_.voted() ? now : runner_.wake_at(now);
}

}  // namespace tfhvd
