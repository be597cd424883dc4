#include "cc/elastic/elastic_state.h"

#include <vector>

namespace tfhvd {

ElasticState::RetainedPtr ElasticState::Remove(EntryId number) {
  RetainedPtr removed = kept.Remove(number);
  if (kept.empty()) idle.NotifyAll();
  return removed;
}

void ElasticState::NoteResult(EntryId number, RetainedEntry* entry, const Status& status) {
  if (!status.ok() && !status.by_agreement()) return;
  if (!entry->survives() || roster.size() == 1) return;
  ledger.Done(status.ok() ? entry->ResultOf() : entry->ResultOf(status), number, next);
}

void ElasticState::FailAll(const std::function<bool(const RetainedEntry&)>& which,
                           const Status& why) {
  std::vector<RetainedPtr> failed;
  {
    const MutexLock lock(&mutex);
    for (EntryId number = kept.NextAfter(0, which); number != 0;
         number = kept.NextAfter(number, which)) {
      failed.push_back(Remove(number));
    }
  }
  for (const RetainedPtr& entry : failed) entry->entry.done(entry->why.ok() ? why : entry->why);
}

}  // namespace tfhvd
