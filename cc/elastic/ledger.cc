#include "cc/elastic/ledger.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "cc/base/wire.h"

namespace tfhvd {
namespace {

void Write(WireWriter* w, const CollectiveSeq& seq) {
  w->String(seq.name);
  w->Signed(seq.number);
}
CollectiveSeq ReadSeq(WireReader* r) {
  CollectiveSeq seq;
  seq.name = r->String();
  seq.number = r->Signed();
  return seq;
}

void Write(WireWriter* w, const ResultRecord& record) {
  Write(w, record.seq);
  w->List(record.shapes, [w](const Shape& shape) { w->Numbers(shape); });
  w->Numbers(record.bytes);
  w->List(record.first_dims, [w](const std::vector<int64_t>& dims) { w->Numbers(dims); });
  w->Signed(record.number);
  w->Byte(record.copies ? 1 : 0);
  Write(w, record.failure);
}
ResultRecord ReadRecord(WireReader* r) {
  ResultRecord record;
  record.seq = ReadSeq(r);
  record.shapes = r->List([r] { return r->Numbers(); });
  record.bytes = r->Numbers();
  record.first_dims = r->List([r] { return r->Numbers(); });
  record.number = r->Signed();
  record.copies = r->Bool();
  record.failure = ReadStatus(r);
  return record;
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
  w.List(position.waits, [&w](const CollectiveSeq& seq) { Write(&w, seq); });
  w.List(position.has, [&w](const ResultRecord& record) { Write(&w, record); });
  return w.Take();
}

Status Decode(const std::string& bytes, Position* position) {
  WireReader r(bytes);
  position->barriers = r.Signed();
  position->is_new = r.Bool();
  position->lost_some = r.Bool();
  position->by_commits = r.Bool();
  position->waits = r.List([&r] { return ReadSeq(&r); });
  position->has = r.List([&r] { return ReadRecord(&r); });
  return r.ok() && r.at_end()
             ? Status::Ok()
             : Status::Internal("a rank sent a malformed position when the members changed");
}

std::vector<Copy> CopiesOf(const std::vector<Position>& positions) {
  std::set<CollectiveSeq> awaited;
  for (const Position& position : positions) {
    awaited.insert(position.waits.begin(), position.waits.end());
  }
  std::map<CollectiveSeq, Copy> copies;  // sorted: all ranks make the copies in this order
  for (size_t rank = 0; rank < positions.size(); ++rank) {
    for (const ResultRecord& record : positions[rank].has) {
      if (awaited.count(record.seq) == 0) continue;
      // From the first rank that has it.
      copies.emplace(record.seq, Copy{static_cast<int>(rank), record});
    }
  }
  std::vector<Copy> sorted;
  for (auto& [seq, copy] : copies) sorted.push_back(std::move(copy));
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
    for (CollectiveSeq& seq : position.waits) seq.number = counts[seq.name]++;
  }
  return last;
}

bool Ledger::Result::copies() const { return failure.ok() && IsAlike(request->kind); }

ResultRecord Ledger::Result::record() const {
  ResultRecord record;
  record.seq = {request->key.name, seq};
  record.copies = copies();
  record.failure = failure;
  if (found != nullptr) {
    record.first_dims = found->first_dims;
    record.number = found->number;
  }
  for (size_t i = 0; i < request->tensors.size() && record.copies; ++i) {
    const TensorSpec& tensor = request->tensors[i];
    const bool late = found != nullptr && !found->shapes.empty();
    record.shapes.push_back(late ? found->shapes[i] : tensor.shape);
    record.bytes.push_back(NumElements(record.shapes[i]) * ItemSize(tensor.dtype));
  }
  return record;
}

void Ledger::Result::CopyTo(char* to) const {
  const std::vector<int64_t> sizes = record().bytes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) std::memcpy(to, data[i], static_cast<size_t>(sizes[i]));
    to += sizes[i];
  }
}

int64_t Ledger::NumberOf(int64_t done) const { return joins_ * kMostBetweenJoins + done; }

CollectiveSeq Ledger::SeqOf(const std::string& name, int64_t nth) const {
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
  result.seq = NumberOf(CountOf(result.request)->done++);
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

const Ledger::Result* Ledger::Find(const CollectiveSeq& seq) const {
  const auto found = std::find_if(results_.begin(), results_.end(), [&seq](const Result& result) {
    return result.seq == seq.number && result.request->key.name == seq.name;
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
