#include "cc/elastic/ledger.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "cc/base/wire.h"

namespace tfhvd {
namespace {

void Write(WireWriter* w, const Turn& turn) {
  w->String(turn.name);
  w->Signed(turn.number);
}
Turn ReadTurn(WireReader* r) {
  Turn turn;
  turn.name = r->String();
  turn.number = r->Signed();
  return turn;
}

void Write(WireWriter* w, const Outcome& outcome) {
  Write(w, outcome.turn);
  w->List(outcome.shapes, [w](const Shape& shape) { w->Numbers(shape); });
  w->Numbers(outcome.bytes);
  w->List(outcome.first_dims, [w](const std::vector<int64_t>& dims) { w->Numbers(dims); });
  w->Signed(outcome.number);
  w->Byte(outcome.copies ? 1 : 0);
  Write(w, outcome.failure);
}
Outcome ReadOutcome(WireReader* r) {
  Outcome outcome;
  outcome.turn = ReadTurn(r);
  outcome.shapes = r->List([r] { return r->Numbers(); });
  outcome.bytes = r->Numbers();
  outcome.first_dims = r->List([r] { return r->Numbers(); });
  outcome.number = r->Signed();
  outcome.copies = r->Bool();
  outcome.failure = ReadStatus(r);
  return outcome;
}

// Separates the turns of different rounds.
constexpr int64_t kMostBetweenJoins = int64_t{1} << 40;

// Returns whether all ranks have equal results.
bool IsAlike(Collective kind) {
  return kind != Collective::kAllToAll && kind != Collective::kReduceScatter;
}

}  // namespace

std::string Encode(const Position& position) {
  WireWriter w;
  w.Signed(position.barriers);
  w.Byte(position.is_new ? 1 : 0);
  w.Byte(position.lost_some ? 1 : 0);
  w.Byte(position.by_commits ? 1 : 0);
  w.List(position.waits, [&w](const Turn& turn) { Write(&w, turn); });
  w.List(position.has, [&w](const Outcome& outcome) { Write(&w, outcome); });
  return w.Take();
}

Status Decode(const std::string& bytes, Position* position) {
  WireReader r(bytes);
  position->barriers = r.Signed();
  position->is_new = r.Bool();
  position->lost_some = r.Bool();
  position->by_commits = r.Bool();
  position->waits = r.List([&r] { return ReadTurn(&r); });
  position->has = r.List([&r] { return ReadOutcome(&r); });
  return r.ok() && r.at_end()
             ? Status::Ok()
             : Status::Internal("a rank sent a malformed position when the members changed");
}

std::vector<Copy> CopiesOf(const std::vector<Position>& positions) {
  std::set<Turn> awaited;
  for (const Position& position : positions) {
    awaited.insert(position.waits.begin(), position.waits.end());
  }
  std::map<Turn, Copy> copies;  // sorted: all ranks make the copies in this order
  for (size_t rank = 0; rank < positions.size(); ++rank) {
    for (const Outcome& outcome : positions[rank].has) {
      if (awaited.count(outcome.turn) == 0) continue;
      // From the first rank that has it.
      copies.emplace(outcome.turn, Copy{static_cast<int>(rank), outcome});
    }
  }
  std::vector<Copy> sorted;
  for (auto& [turn, copy] : copies) sorted.push_back(std::move(copy));
  return sorted;
}

int64_t CatchUp(std::vector<Position>* positions) {
  int64_t last = 0;
  for (const Position& position : *positions) last = std::max(last, position.barriers);
  for (Position& position : *positions) {
    if (position.is_new) position.waits.clear();  // not for collectives that the others have done
    if (position.barriers == last) continue;
    position.has.clear();  // all ranks have them
    std::map<std::string, int64_t> counts;
    for (Turn& turn : position.waits) turn.number = counts[turn.name]++;
  }
  return last;
}

bool Ledger::Result::copies() const { return failure.ok() && IsAlike(request->kind); }

Outcome Ledger::Result::outcome() const {
  Outcome outcome;
  outcome.turn = {request->key.name, turn};
  outcome.copies = copies();
  outcome.failure = failure;
  if (found != nullptr) {
    outcome.first_dims = found->first_dims;
    outcome.number = found->number;
  }
  for (size_t i = 0; i < request->tensors.size() && outcome.copies; ++i) {
    const TensorSpec& tensor = request->tensors[i];
    const bool late = found != nullptr && !found->shapes.empty();
    outcome.shapes.push_back(late ? found->shapes[i] : tensor.shape);
    outcome.bytes.push_back(NumElements(outcome.shapes[i]) * ItemSize(tensor.dtype));
  }
  return outcome;
}

void Ledger::Result::CopyTo(char* to) const {
  const std::vector<int64_t> sizes = outcome().bytes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) std::memcpy(to, data[i], static_cast<size_t>(sizes[i]));
    to += sizes[i];
  }
}

int64_t Ledger::NumberOf(int64_t done) const { return joins_ * kMostBetweenJoins + done; }

Turn Ledger::TurnOf(const std::string& name, int64_t nth) const {
  const auto found = counts_.find(name);
  return {name, NumberOf(found == counts_.end() ? 0 : DoneOf(found->second)) + nth};
}

// Steps repeat, so that the count is mostly the one that came next the last time. Looking up a name
// each time would take as long as all the rest of Done.
Ledger::Count* Ledger::CountOf(const SharedRequest& request) {
  Count* count = latest_ == nullptr ? nullptr : latest_->next;
  if (count == nullptr || count->request.get() != request.get()) {
    count = &counts_[request->key.name];
    count->request = request;
    if (latest_ != nullptr) latest_->next = count;
  }
  if (count->round != round_) {
    count->round = round_;
    count->done = 0;
  }
  latest_ = count;
  return count;
}

void Ledger::LetGo() {
  results_.clear();
  ++barriers_;
  joins_ = 0;
  ++round_;
  if (counts_.size() > most_counts_) Forget();
}

// A name that has not come in the last two rounds is unlikely to come again.
void Ledger::Forget() {
  for (auto count = counts_.begin(); count != counts_.end();) {
    count->second.next = nullptr;
    count = count->second.round + 2 < round_ ? counts_.erase(count) : std::next(count);
  }
  latest_ = nullptr;
  most_counts_ = std::max(kFewCounts, 2 * counts_.size());
}

void Ledger::Done(Result&& result, uint64_t entry, uint64_t next_entry) {
  const Collective kind = result.request->kind;
  const bool meets_all = result.failure.ok() && MeetsAll(*result.request);
  while (meets_all && !results_.empty() && results_.front().next_entry <= entry) {
    results_.pop_front();
  }
  result.turn = NumberOf(CountOf(result.request)->done++);
  result.next_entry = next_entry;
  results_.push_back(std::move(result));
  if (kind == Collective::kJoin) {
    ++joins_;
    ++round_;
  }
}

std::string Ledger::EncodeCounts() const {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const auto& [name, count] : counts_) {
    if (DoneOf(count) > 0) counts.emplace_back(name, DoneOf(count));
  }
  WireWriter w;
  w.Signed(barriers_);
  w.Signed(joins_);
  w.List(counts, [&w](const std::pair<std::string, int64_t>& count) {
    w.String(count.first);
    w.Signed(count.second);
  });
  return w.Take();
}

Status Ledger::AdoptCounts(const std::string& bytes) {
  WireReader r(bytes);
  barriers_ = r.Signed();
  joins_ = r.Signed();
  const auto counts = r.List([&r] {
    std::string name = r.String();
    const int64_t count = r.Signed();
    return std::make_pair(std::move(name), count);
  });
  if (!r.ok() || !r.at_end()) return Status::Internal("a rank sent malformed counts");
  counts_.clear();
  latest_ = nullptr;
  for (const auto& [name, count] : counts) {
    Count& own = counts_[name];
    own.round = round_;
    own.done = count;
  }
  return Status::Ok();
}

const Ledger::Result* Ledger::Find(const Turn& turn) const {
  const auto found = std::find_if(results_.begin(), results_.end(), [&turn](const Result& result) {
    return result.turn == turn.number && result.request->key.name == turn.name;
  });
  return found == results_.end() ? nullptr : &*found;
}

bool MeetsAll(const Request& request) {
  switch (request.kind) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return BytesOf(request) > 0;
    case Collective::kBarrier:
      return true;
    default:
      // A root need not wait for the others, nor a rank that gets no rows from them. Ranks may
      // agree on collectives without data while calls still run.
      return false;
  }
}

}  // namespace tfhvd
