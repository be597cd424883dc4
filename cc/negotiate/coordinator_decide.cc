// What the coordinator makes of a collective that everyone has asked for.
#include <algorithm>
#include <iterator>
#include <utility>

#include "cc/negotiate/agree.h"
#include "cc/negotiate/coordinator.h"

namespace tfhvd {
namespace {

// What a number of a cache can stand for: what means the same whenever it is agreed.
bool MayRepeat(Collective kind) {
  return kind != Collective::kJoin && kind != Collective::kAddProcessSet &&
         kind != Collective::kRemoveProcessSet;
}

std::vector<int> Ranks(const std::vector<int64_t>& members) {
  return {members.begin(), members.end()};
}

}  // namespace

Status ProcessSetRemoved(const Key& key) {
  return Status::InvalidArgument(
      "'" + key.name + "' cannot be done: process set " + std::to_string(key.process_set) +
      " was removed. Received: a process set that is gone. Expected: one that was added and not "
      "removed since.");
}

void Coordinator::Decide(Slot* slot) {
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
  item.decision.stopping = !absent.empty() && AskedToStop(slot->key.process_set);
  int first = 0;
  while (!HasAnnounced(*slot, first)) ++first;
  const Request request = RequestOf(*slot, first);
  if (!item.decision.verdict.ok()) {
    error_epoch_ = sequence_;
    for (int r : *slot->members) {
      if (!HasAnnounced(*slot, r)) continue;
      concerned_[r] = true;
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

bool Coordinator::AskedToStop(int32_t process_set) const {
  return std::any_of(joined_.begin(), joined_.end(), [process_set](const auto& joined) {
    return (joined.first == 0 || joined.first == process_set) && joined.second.stops;
  });
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
  if (decision.verdict.ok()) decision.verdict = CheckProcessSet(requests[0], absent);
  return decision;
}

// Whether the set that is to be made or removed can be.
Status Coordinator::CheckProcessSet(const Request& request, const std::vector<int>& absent) const {
  const bool add = request.kind == Collective::kAddProcessSet;
  if (!add && request.kind != Collective::kRemoveProcessSet) return Status::Ok();
  const std::vector<int> members = Ranks(request.members);
  const std::string received = " Received: a process set of ranks " + RankList(members) + ".";
  const bool valid =
      !members.empty() && members.front() >= 0 && members.back() < size() &&
      std::adjacent_find(
          members.begin(), members.end(), [](int a, int b) { return a >= b; }) == members.end();
  if (!valid) {
    return Status::InvalidArgument("A process set is made of ranks of the job." + received +
                                   " Expected: different ranks from 0 to " +
                                   std::to_string(size() - 1) + ", at least one.");
  }
  if (!absent.empty()) {
    return Status::InvalidArgument("Process sets cannot be changed while ranks " +
                                   RankList(absent) + " have joined." + received +
                                   " Expected: to change them before any rank calls hvd.join().");
  }
  const int32_t id = sets_.IdOf(members);
  if (add && id != ProcessSetTable::kNone) {
    return Status::InvalidArgument("There is a process set of these ranks already, number " +
                                   std::to_string(id) + "." + received +
                                   " Expected: other ranks; use the one that there is.");
  }
  if (!add && id <= 0) {
    return Status::InvalidArgument(
        (id == 0 ? "The process set of all ranks cannot be removed."
                 : "There is no such process set to be removed.") +
        received + " Expected: a process set that was added, and not removed since.");
  }
  return Status::Ok();
}

// REQUIRES: the decision is ok, and of a kind that changes what the ranks agree on later.
void Coordinator::TakeEffect(const Request& request, Decision* decision) {
  if (request.kind == Collective::kJoin) {
    decision->number = joined_[request.key.process_set].last;
    joined_.erase(request.key.process_set);
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
  if (!options_.may_lock || error_epoch_ == sequence_ || !fatal_.ok() || !detector_.Repeats())
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
  joined_.clear();
}

}  // namespace tfhvd
