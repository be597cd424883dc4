#include "cc/elastic/ledger.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace tfhvd {
namespace {

// Numbers as eight bytes, lists and texts with their length before them.
class Writer {
 public:
  void Number(int64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void Text(const std::string& text) {
    Number(static_cast<int64_t>(text.size()));
    bytes_ += text;
  }
  void Numbers(const std::vector<int64_t>& values) {
    Number(static_cast<int64_t>(values.size()));
    for (const int64_t value : values) Number(value);
  }
  void Lists(const std::vector<std::vector<int64_t>>& lists) {
    Number(static_cast<int64_t>(lists.size()));
    for (const auto& list : lists) Numbers(list);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After anything that is not there every read gives nothing, and ok() is false.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  int64_t Number() {
    int64_t value = 0;
    if (left() < static_cast<int64_t>(sizeof value)) return Fail();
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  // A count of what follows, each of which has at least so many bytes.
  int64_t Count(int64_t least) {
    const int64_t count = Number();
    return count < 0 || count > left() / least ? Fail() : count;
  }
  std::string Text() {
    const auto size = static_cast<size_t>(Count(1));
    std::string text = bytes_.substr(at_, size);
    at_ += size;
    return text;
  }
  std::vector<int64_t> Numbers() {
    std::vector<int64_t> values(static_cast<size_t>(Count(sizeof(int64_t))));
    for (int64_t& value : values) value = Number();
    return values;
  }
  std::vector<std::vector<int64_t>> Lists() {
    std::vector<std::vector<int64_t>> lists(static_cast<size_t>(Count(sizeof(int64_t))));
    for (auto& list : lists) list = Numbers();
    return lists;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return left() == 0; }

 private:
  int64_t left() const { return static_cast<int64_t>(bytes_.size() - at_); }
  int64_t Fail() {
    ok_ = false;
    at_ = bytes_.size();
    return 0;
  }

  const std::string& bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

void Write(const Turn& turn, Writer* to) {
  to->Text(turn.name);
  to->Number(turn.number);
}

Turn ReadTurn(Reader* from) {
  Turn turn;
  turn.name = from->Text();
  turn.number = from->Number();
  return turn;
}

constexpr int64_t kLeastTurn = 2 * sizeof(int64_t);

// Turns of later rounds are other numbers.
constexpr int64_t kMostBetweenJoins = int64_t{1} << 40;

}  // namespace

std::string Encode(const Position& position) {
  Writer to;
  to.Number(static_cast<int64_t>(position.waits.size()));
  for (const Turn& turn : position.waits) Write(turn, &to);
  to.Number(static_cast<int64_t>(position.has.size()));
  for (const Outcome& outcome : position.has) {
    Write(outcome.turn, &to);
    to.Lists(outcome.shapes);
    to.Numbers(outcome.bytes);
    to.Lists(outcome.first_dims);
    to.Number(outcome.number);
    to.Number(outcome.copies ? 1 : 0);
  }
  return to.Take();
}

Status Decode(const std::string& bytes, Position* position) {
  Reader from(bytes);
  for (int64_t left = from.Count(kLeastTurn); left > 0; --left) {
    position->waits.push_back(ReadTurn(&from));
  }
  for (int64_t left = from.Count(kLeastTurn); left > 0; --left) {
    Outcome outcome;
    outcome.turn = ReadTurn(&from);
    outcome.shapes = from.Lists();
    outcome.bytes = from.Numbers();
    outcome.first_dims = from.Lists();
    outcome.number = from.Number();
    outcome.copies = from.Number() != 0;
    position->has.push_back(std::move(outcome));
  }
  return from.ok() && from.at_end()
             ? Status::Ok()
             : Status::Internal("a rank sent a malformed position after another one was lost");
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
