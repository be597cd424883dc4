// What the coordinator makes of a collective that everyone has asked for.
#include <algorithm>
#include <iterator>
#include <utility>

#include "cc/negotiate/agree.h"
#include "cc/negotiate/coordinator.h"
#include "cc/negotiate/process_set_rules.h"

namespace tfhvd {
namespace {

// What a number of a cache can stand for: what means the same whenever it is agreed.
bool MayRepeat(Collective kind) {
  return kind != Collective::kJoin && kind != Collective::kAddProcessSet &&
         kind != Collective::kRemoveProcessSet;
}

}  // namespace

void Coordinator::Decide(Slot* slot, double now) {
  slot->last_used = sequence_;
  const std::vector<int> absent = Absent(*slot);
  Agreement::Item item;
  const bool repeat = slot->requests.empty() && slot->evicted_at == 0 && absent.empty();
  Detect(*slot, repeat);
  if (repeat) {
    item.id = slot->id;
    item.repeat = true;
    Tell(*slot, absent, std::move(item));
    ClearTally(slot);
    return;
  }

  item.decision = Compare(*slot, absent);
  item.decision.stopping = !absent.empty() && joined_.AskToStop(slot->key.process_set);
  int first = 0;
  while (!HasAnnounced(*slot, first)) ++first;
  const Request request = RequestOf(*slot, first);
  if (!item.decision.verdict.ok()) {
    error_epoch_.Begin(sequence_, now);
    for (int r : *slot->members) {
      if (!HasAnnounced(*slot, r)) continue;
      error_epoch_.Concerns(r);
      next_[r].confirm = true;
    }
  } else if (!MayRepeat(request.kind)) {
    TakeEffect(request, &item.decision);
  } else if (absent.empty()) {  // else it means something else once nobody is absent
    slot->request = request;
    slot->decision = item.decision;
    if (slot->id == kNoId || slot->evicted_at != 0) {
      Warn(capacity_monitor_.SawWithoutNumber(slot->key));
    }
    const CacheId evicted = ids_.Assign(slot, sequence_);
    if (evicted != kNoId) {
      for (Agreement& a : next_) a.evicted.push_back(evicted);
    }
    item.id = slot->id;
  }
  item.request = request;
  Tell(*slot, absent, std::move(item));
  ClearTally(slot);
  DropIfEmpty(slot);
}

// Sends what was decided to those who asked, and to those who take part by placeholders.
void Coordinator::Tell(const Slot& slot, const std::vector<int>& absent, Agreement::Item item) {
  for (int r : absent) {
    if (!item.decision.verdict.ok()) break;
    next_[r].items.push_back(item);
    next_[r].items.back().placeholder = true;
  }
  item.request = Request();
  for (int r : *slot.members) {
    if (HasAnnounced(slot, r)) next_[r].items.push_back(item);
  }
}

Decision Coordinator::Compare(const Slot& slot, const std::vector<int>& absent) {
  std::vector<Request> requests;
  std::vector<int> ranks;
  for (int r : *slot.members) {
    if (!HasAnnounced(slot, r)) continue;
    requests.push_back(RequestOf(slot, r));
    ranks.push_back(r);
  }
  std::vector<const Request*> pointers;
  for (const Request& q : requests) pointers.push_back(&q);
  Decision decision = Agree(pointers, ranks, absent);
  if (decision.verdict.ok()) {
    decision.verdict = CheckProcessSetChange(sets_, requests[0], absent, size());
  }
  return decision;
}

// REQUIRES: the decision is ok, and of a kind that changes what the ranks agree on later.
void Coordinator::TakeEffect(const Request& request, Decision* decision) {
  if (request.kind == Collective::kJoin) {
    decision->number = joined_.Finish(request.key.process_set);
    ReopenIncomplete();
    return;
  }
  const std::vector<int> members = Ranks(request.members);
  if (request.kind == Collective::kAddProcessSet) {
    decision->number = sets_.NextId();
    sets_.Put(static_cast<int32_t>(decision->number), members);
    return;
  }
  const int32_t id = sets_.IdOf(members);
  decision->number = id;
  RemoveProcessSet(id);
}

void Coordinator::RemoveProcessSet(int32_t id) {
  sets_.Remove(id);
  std::vector<Slot*> gone;
  for (auto& [key, slot] : slots_) {
    if (key.process_set == id) gone.push_back(&slot);
  }
  for (Slot* slot : gone) {
    if (slot->count > 0) FailOpen(slot, ProcessSetRemoved(slot->key));
    if (slot->id != kNoId && slot->evicted_at == 0) {
      for (int r : *slot->members) next_[r].evicted.push_back(slot->id);
      ids_.Evict(slot, sequence_);
    }
    DropIfEmpty(slot);
  }
}

// A schedule is of all ranks: what concerns some only, or changes with each time, is none of it.
void Coordinator::Detect(const Slot& slot, bool repeat) {
  if (!repeat || slot.key.process_set != 0) return detector_.Disturbed();
  int64_t bytes = 0;
  for (const TensorSpec& t : slot.request.tensors)
    bytes += NumElements(t.shape) * ItemSize(t.dtype);
  const bool fusible = slot.request.kind == Collective::kAllReduce;
  detector_.Saw({slot.id, bytes, sequence_, slot.known_before, fusible});
}

void Coordinator::LockIfRepeating() {
  if (!options_.may_lock || error_epoch_.sequence() == sequence_ || !fatal_.ok() ||
      !detector_.Repeats())
    return;
  const std::vector<Bucket>& schedule = detector_.Lock();
  for (Agreement& a : next_) {
    a.lock = schedule;
    a.lock_term = detector_.term();
  }
  locked_at_ = sequence_;
  locked_ = true;
  ForgetOpen();
}

// Invariant 6: the ranks have their tensors again, as if they had not announced them.
void Coordinator::ForgetOpen() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    if (slot->second.count > 0) ClearTally(&slot->second);
    slot = slot->second.id == kNoId ? slots_.erase(slot) : std::next(slot);
  }
  ready_.clear();
  num_ready_ = 0;
  open_ = 0;
  (void)joined_.ForgetAll();
}

}  // namespace tfhvd
