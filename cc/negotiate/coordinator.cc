#include "cc/negotiate/coordinator.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "cc/negotiate/agree.h"

namespace tfhvd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string Seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, s < 10 ? "%.1f s" : "%.0f s", s);
  return text;
}

}  // namespace

Coordinator::Coordinator(Options options)
    : options_(std::move(options)),
      seen_(options_.hosts.size(), 0),
      left_(options_.hosts.size(), false),
      personal_(options_.hosts.size()) {}

Coordinator::Slot* Coordinator::SlotOf(const Key& key) {
  Slot& slot = slots_[key];
  if (slot.announced.empty()) {
    slot.key = key;
    slot.announced.assign(size(), Announced::kNot);
  }
  return &slot;
}

Status Coordinator::Take(int from, Announcement a, double now) {
  seen_[from] = std::max(seen_[from], a.seen);
  if (a.seen < locked_at_) {  // invariant 5
    a.known.clear();
    a.requests.clear();
    a.withdrawn.clear();
  }
  // Withdrawals first: the same rank may announce the key anew in the same message.
  for (const Key& key : a.withdrawn) Withdraw(from, key);
  for (CacheId id : a.known) {
    const auto slot = by_id_.find(id);
    if (slot == by_id_.end()) {
      return Status::Internal("rank " + std::to_string(from) +
                              " announced the unknown tensor number " + std::to_string(id));
    }
    TFHVD_RETURN_IF_ERROR(Count(slot->second, from, Announced::kById, now));
  }
  for (Request& request : a.requests) {
    Slot* slot = SlotOf(request.key);
    if (slot->requests.empty()) slot->requests.resize(size());
    slot->requests[from] = std::move(request);
    TFHVD_RETURN_IF_ERROR(Count(slot, from, Announced::kInFull, now));
  }
  if (a.leaving) RankLeft(from, a.leave_reason);
  ForgetEvicted();
  return Status::Ok();
}

Status Coordinator::Count(Slot* slot, int rank, Announced how, double now) {
  if (slot->announced[rank] != Announced::kNot) {
    return Status::Internal("rank " + std::to_string(rank) + " announced '" + slot->key.name +
                            "' twice before it was decided");
  }
  slot->announced[rank] = how;
  slot->known_before = std::max(slot->known_before, seen_[rank]);
  if (slot->count++ == 0) {
    slot->since = now;
    ++open_;
  }
  if (!doom_.ok()) {
    FailOpen(slot, DoomOf(*slot));
  } else if (slot->count == size()) {
    --open_;
    if (ready_.empty()) ready_since_ = now;
    ready_.push_back(slot);
  }
  return Status::Ok();
}

void Coordinator::Withdraw(int rank, const Key& key) {
  const auto found = slots_.find(key);
  if (found == slots_.end()) return;  // decided in the meantime
  Slot* slot = &found->second;
  if (slot->announced[rank] == Announced::kNot) return;  // decided in the meantime
  if (slot->count == size()) {                           // complete, but not decided yet
    ready_.erase(std::find(ready_.begin(), ready_.end(), slot));
    ++open_;
  }
  slot->announced[rank] = Announced::kNot;
  personal_[rank].withdrawn.push_back(key);
  if (--slot->count > 0) {
    // It was complete when the job was doomed; now it can no longer happen either.
    if (!doom_.ok()) FailOpen(slot, DoomOf(*slot));
    return;
  }
  --open_;
  ClearTally(slot);
  if (slot->id == kNoId) slots_.erase(found);
}

// The request that `rank` means.
Request Coordinator::RequestOf(const Slot& slot, int rank) const {
  if (slot.announced[rank] == Announced::kInFull) return slot.requests[rank];
  Request request = slot.request;
  for (size_t t = 0; t < slot.decision.first_dims.size(); ++t) {
    request.tensors[t].shape[0] = slot.decision.first_dims[t][rank];
  }
  return request;
}

void Coordinator::RankLeft(int rank, const std::string& reason) {
  if (left_[rank]) return;
  left_[rank] = true;
  ++num_left_;
  if (doom_.ok()) {
    doom_ = Status::Aborted("rank " + std::to_string(rank) + " (host " + options_.hosts[rank] +
                            ") has left the job: " +
                            (reason.empty() ? "it called shutdown or its program ended" : reason));
  }
  for (auto& [key, slot] : slots_) {
    if (slot.count > 0 && slot.count < size()) FailOpen(&slot, DoomOf(slot));
  }
}

// REQUIRES: some rank announced the slot.
Status Coordinator::DoomOf(const Slot& slot) const {
  int rank = 0;
  while (slot.announced[rank] == Announced::kNot) ++rank;
  return Status(doom_.code(),
                Describe(RequestOf(slot, rank)) + " cannot be completed: " + doom_.message());
}

// Everyone who announced the slot gets the error; the tally is empty afterwards.
void Coordinator::FailOpen(Slot* slot, const Status& why) {
  for (int r = 0; r < size(); ++r) {
    if (slot->announced[r] == Announced::kNot) continue;
    Agreement::Item item;
    item.decision.key = slot->key;
    item.decision.verdict = why;
    personal_[r].items.push_back(std::move(item));
  }
  --open_;
  ClearTally(slot);
}

void Coordinator::ClearTally(Slot* slot) {
  slot->count = 0;
  slot->reported = false;
  slot->known_before = 0;
  slot->announced.assign(size(), Announced::kNot);
  slot->requests.clear();
  slot->requests.shrink_to_fit();
}

bool Coordinator::FenceHolds() {
  if (fence_ == 0) return false;
  for (int r = 0; r < size(); ++r) {
    if (!left_[r] && seen_[r] < fence_) return true;
  }
  fence_ = 0;
  return false;
}

std::vector<std::pair<int, Agreement>> Coordinator::Step(double now) {
  CheckStalls(now);
  Agreement common;
  const bool wait_for_company = now < ready_since_ + options_.cycle_time;
  if (!ready_.empty() && !FenceHolds() && !wait_for_company) {
    ++sequence_;
    std::vector<Slot*> ready;
    ready.swap(ready_);
    for (Slot* slot : ready) Decide(slot, &common);
    if (options_.may_lock && !common.confirm && doom_.ok() && watch_.Repeats()) {
      common.lock = watch_.Schedule();
      watch_.Disturbed();
      locked_at_ = sequence_;
      ForgetOpen();
    }
    if (common.confirm) {
      fence_ = sequence_;
      fence_since_ = now;
      fence_reported_ = false;
    }
  }
  if (num_left_ == size() && !goodbye_sent_ && ready_.empty()) {
    goodbye_sent_ = true;
    common.everyone_left = true;
  }

  std::vector<std::pair<int, Agreement>> out;
  for (int r = 0; r < size(); ++r) {
    Agreement* mine = &personal_[r];
    if (common.empty() && mine->empty()) continue;
    Agreement a = common;
    a.sequence = sequence_;
    a.items.insert(a.items.end(), mine->items.begin(), mine->items.end());
    a.withdrawn = std::move(mine->withdrawn);
    a.confirm = common.confirm || mine->confirm;
    a.notice = std::move(mine->notice);
    *mine = Agreement();
    out.emplace_back(r, std::move(a));
  }
  return out;
}

void Coordinator::Decide(Slot* slot, Agreement* common) {
  slot->last_used = sequence_;
  Agreement::Item item;
  const bool all_by_id = slot->requests.empty() && slot->evicted_at == 0;
  Watch(*slot, all_by_id);
  if (all_by_id) {
    item.id = slot->id;
    item.repeat = true;
    common->items.push_back(std::move(item));
    ClearTally(slot);
    return;
  }

  std::vector<Request> requests;
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    requests.push_back(RequestOf(*slot, r));
    ranks.push_back(r);
  }
  std::vector<const Request*> pointers;
  for (const Request& q : requests) pointers.push_back(&q);
  item.decision = Agree(pointers, ranks);
  const bool agreed = item.decision.verdict.ok();
  if (agreed) {
    slot->request = requests[0];
    slot->decision = item.decision;
    AssignId(slot, common);
    item.id = slot->id;
  } else {
    common->confirm = true;
  }
  common->items.push_back(std::move(item));
  ClearTally(slot);
  if (slot->id == kNoId) slots_.erase(Key(slot->key));  // a copy: the slot goes
}

void Coordinator::Watch(const Slot& slot, bool repeat) {
  // A schedule is every rank's business, so it holds collectives of all ranks alone.
  if (!repeat || slot.key.process_set != 0) return watch_.Disturbed();
  int64_t bytes = 0;
  for (const TensorSpec& t : slot.request.tensors)
    bytes += NumElements(t.shape) * ItemSize(t.dtype);
  const bool fusible = slot.request.kind == Collective::kAllReduce;
  watch_.Saw({slot.id, bytes, sequence_, slot.known_before, fusible});
}

// Invariant 5: the ranks have their tensors again, as if they had not announced them.
void Coordinator::ForgetOpen() {
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    if (slot->second.count > 0) ClearTally(&slot->second);
    slot = slot->second.id == kNoId ? slots_.erase(slot) : std::next(slot);
  }
  open_ = 0;
}

// Gives the slot an id if it has none (or an evicted one), evicting the least recently used where
// the cache is full. Without a free place the slot stays without one.
void Coordinator::AssignId(Slot* slot, Agreement* common) {
  if (slot->id != kNoId && slot->evicted_at == 0) return;
  if (slot->evicted_at != 0) {  // nobody can announce the old id any more (invariant 4)
    by_id_.erase(slot->id);
    evicted_.erase(std::find(evicted_.begin(), evicted_.end(), slot->id));
    slot->id = kNoId;
    slot->evicted_at = 0;
  }
  if (ids_in_use_ >= options_.cache_capacity) {
    Slot* oldest = nullptr;
    for (const auto& [id, candidate] : by_id_) {
      if (candidate->count > 0 || candidate->evicted_at != 0 || candidate->last_used == sequence_)
        continue;
      if (oldest == nullptr || candidate->last_used < oldest->last_used) oldest = candidate;
    }
    if (oldest == nullptr) return;
    oldest->evicted_at = sequence_;
    evicted_.push_back(oldest->id);
    common->evicted.push_back(oldest->id);
    --ids_in_use_;
  }
  slot->id = next_id_++;
  by_id_[slot->id] = slot;
  ++ids_in_use_;
}

void Coordinator::ForgetEvicted() {
  if (evicted_.empty()) return;
  const uint64_t seen_by_all = *std::min_element(seen_.begin(), seen_.end());
  for (size_t i = 0; i < evicted_.size();) {
    Slot* slot = by_id_.at(evicted_[i]);
    if (slot->count > 0 || slot->evicted_at > seen_by_all) {
      ++i;
      continue;
    }
    by_id_.erase(slot->id);
    slots_.erase(Key(slot->key));
    evicted_[i] = evicted_.back();
    evicted_.pop_back();
  }
}

double Coordinator::wake_at() const {
  double at = kNever;
  if (!ready_.empty() && fence_ == 0) at = ready_since_ + options_.cycle_time;
  if (options_.stall_check && (open_ > 0 || fence_ != 0)) at = std::min(at, next_stall_check_);
  return at;
}

void Coordinator::CheckStalls(double now) {
  if (!options_.stall_check || (open_ == 0 && fence_ == 0) || now < next_stall_check_) return;
  next_stall_check_ = now + options_.stall_check_time / 4;
  constexpr int kMostNamed = 8;
  std::string report;
  int stalled = 0;
  Slot* fatal = nullptr;
  for (auto& [key, slot] : slots_) {
    if (slot.count == 0 || slot.count == size()) continue;
    const double age = now - slot.since;
    if (options_.stall_shutdown_time > 0 && age >= options_.stall_shutdown_time) fatal = &slot;
    for (int r = 0; r < size() && age >= options_.stall_check_time / 2; ++r) {
      // A sign of life to those who wait, or they would take this rank to be gone.
      if (slot.announced[r] != Announced::kNot) personal_[r].confirm = true;
    }
    if (slot.reported || age < options_.stall_check_time) continue;
    slot.reported = true;
    if (++stalled <= kMostNamed) report += "\n  " + StallText(slot, now);
  }
  if (stalled > kMostNamed) report += "\n  and " + std::to_string(stalled - kMostNamed) + " more";
  report += FenceText(now);
  if (!report.empty()) {
    personal_[0].notice =
        "some ranks wait for others:" + report +
        "\n  A rank may be slow, stopped, or on another path through the program (a condition that "
        "depends on the rank).";
  }
  if (fatal == nullptr) return;
  doom_ = Status::Aborted("stalled for longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS: " +
                          StallText(*fatal, now));
  for (auto& [key, slot] : slots_) {
    if (slot.count > 0 && slot.count < size()) FailOpen(&slot, DoomOf(slot));
  }
}

// A rank that does not confirm a failure (invariant 3) holds up everybody; "" where there is none
// to report.
std::string Coordinator::FenceText(double now) {
  if (!FenceHolds()) return "";
  std::vector<int> silent;
  for (int r = 0; r < size(); ++r) {
    if (!left_[r] && seen_[r] < fence_) silent.push_back(r);
    if (r != 0 && now - fence_since_ >= options_.stall_check_time / 2) personal_[r].confirm = true;
  }
  if (fence_reported_ || now - fence_since_ < options_.stall_check_time) return "";
  fence_reported_ = true;
  return "\n  a collective failed " + Seconds(now - fence_since_) + " ago, and ranks " +
         RankList(silent) + " (first on host " + options_.hosts[silent[0]] +
         ") have not taken note of it: nothing else is agreed until they do";
}

std::string Coordinator::StallText(const Slot& slot, double now) const {
  std::vector<int> here;
  std::vector<int> missing;
  for (int r = 0; r < size(); ++r) {
    (slot.announced[r] != Announced::kNot ? here : missing).push_back(r);
  }
  return Describe(RequestOf(slot, here[0])) + " has waited " + Seconds(now - slot.since) +
         ": submitted by ranks " + RankList(here) + ", not by ranks " + RankList(missing) +
         " (first on host " + options_.hosts[missing[0]] + ")";
}

}  // namespace tfhvd
