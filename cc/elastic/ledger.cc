#include "cc/elastic/ledger.h"

#include <algorithm>
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
}
Outcome ReadOutcome(WireReader* r) {
  Outcome outcome;
  outcome.turn = ReadTurn(r);
  outcome.shapes = r->List([r] { return r->Numbers(); });
  outcome.bytes = r->Numbers();
  outcome.first_dims = r->List([r] { return r->Numbers(); });
  outcome.number = r->Signed();
  outcome.copies = r->Bool();
  return outcome;
}

// Turns of later rounds are other numbers.
constexpr int64_t kMostBetweenJoins = int64_t{1} << 40;

}  // namespace

std::string Encode(const Position& position) {
  WireWriter w;
  w.Byte(position.is_new ? 1 : 0);
  w.List(position.waits, [&w](const Turn& turn) { Write(&w, turn); });
  w.List(position.has, [&w](const Outcome& outcome) { Write(&w, outcome); });
  return w.Take();
}

Status Decode(const std::string& bytes, Position* position) {
  WireReader r(bytes);
  position->is_new = r.Bool();
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
  std::map<Turn, Copy> copies;  // sorted: all ranks make them in this order
  for (size_t rank = 0; rank < positions.size(); ++rank) {
    for (const Outcome& outcome : positions[rank].has) {
      if (awaited.count(outcome.turn) == 0) continue;
      copies.emplace(outcome.turn, Copy{static_cast<int>(rank), outcome});  // the first that has it
    }
  }
  std::vector<Copy> sorted;
  for (auto& [turn, copy] : copies) sorted.push_back(std::move(copy));
  return sorted;
}

Turn Ledger::TurnOf(const std::string& name, int64_t nth) const {
  const auto found = done_.find(name);
  return {name, joins_ * kMostBetweenJoins + (found == done_.end() ? 0 : found->second) + nth};
}

void Ledger::Done(const Request& request, Result result, uint64_t entry, uint64_t next_entry) {
  const bool meets_all = MeetsAll(request);
  while (meets_all && !results_.empty() && results_.front().next_entry <= entry) {
    results_.pop_front();
  }
  result.outcome.turn = TurnOf(request.key.name, 0);
  result.next_entry = next_entry;
  results_.push_back(std::move(result));
  ++done_[request.key.name];
  if (request.kind == Collective::kJoin) {
    ++joins_;
    done_.clear();
  }
}

std::string Ledger::EncodeCounts() const {
  const std::vector<std::pair<std::string, int64_t>> counts(done_.begin(), done_.end());
  WireWriter w;
  w.Signed(joins_);
  w.List(counts, [&w](const std::pair<std::string, int64_t>& count) {
    w.String(count.first);
    w.Signed(count.second);
  });
  return w.Take();
}

Status Ledger::TakeOverCounts(const std::string& bytes) {
  WireReader r(bytes);
  joins_ = r.Signed();
  const auto counts = r.List([&r] {
    std::string name = r.String();
    const int64_t count = r.Signed();
    return std::make_pair(std::move(name), count);
  });
  if (!r.ok() || !r.at_end()) return Status::Internal("a rank sent malformed counts");
  done_ = {counts.begin(), counts.end()};
  return Status::Ok();
}

const Ledger::Result* Ledger::Find(const Turn& turn) const {
  const auto found = std::find_if(results_.begin(), results_.end(), [&turn](const Result& result) {
    return result.outcome.turn == turn;
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
      // A root need not wait for others, nor who gets no rows from them; what is agreed on by
      // messages alone is agreed on while calls still run.
      return false;
  }
}

}  // namespace tfhvd
