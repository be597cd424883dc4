#include "cc/collectives/transfer/block_reduce.h"

#include <algorithm>

#include "cc/numeric/arithmetic.h"

namespace tfhvd {
namespace {

// In a round a rank reduces a part of the size of a message; with many ranks less, so that the
// parts of all ranks together stay within kRoundBytes.
constexpr int64_t kLeastPartBytes = 16 << 10;
constexpr int64_t kRoundBytes = 2 << 20;

// The number of rounds whose parts are in transit at once.
constexpr int64_t kLeastRoundsAhead = 4;
constexpr int64_t kMostRoundsAhead = 16;

}  // namespace

BlockReduce::BlockReduce(Transfers* transfers)
    : transfers_(transfers),
      part_bytes_(std::max(kLeastPartBytes, std::min(kMessageBytes, kRoundBytes / size()))),
      rounds_ahead_(std::clamp(kBytesAhead / std::max<int64_t>(1, (size() - 1) * part_bytes_),
                               kLeastRoundsAhead, kMostRoundsAhead)) {}

BlockReduce::~BlockReduce() {
  // The transport may still write into the scratch of failed rounds, so it is leaked.
  if (!transfers_->Settle()) (void)new std::vector<char>(std::move(scratch_));
}

char* BlockReduce::ScratchOf(RoundId id) {
  const int64_t slot = (size() - 1) * part_bytes_;
  if (scratch_.empty()) scratch_.resize(static_cast<size_t>(rounds_ahead_ * slot));
  return scratch_.data() + id % rounds_ahead_ * slot;
}

void BlockReduce::AddAllReduce(const Call& call, int64_t count) {
  const int64_t block = part_bytes_ / call.item() * size();
  for (int64_t at = 0; at < count; at += block) {
    const int64_t end = std::min(count, at + block);
    const int64_t each = (end - at + size() - 1) / size();
    Round round;
    round.call = call;
    for (int r = 0; r < size(); ++r) {
      round.begins.push_back(std::min(end, at + each * r));
      round.counts.push_back(std::min(each, end - round.begins.back()));
    }
    round.result = call.out + round.begins[static_cast<size_t>(rank())] * call.item();
    round.to_all = true;
    rounds_.push_back(std::move(round));
  }
}

void BlockReduce::AddScatter(const Call& call, const std::vector<int64_t>& counts) {
  const int64_t part = part_bytes_ / call.item();
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  for (int64_t at = 0; at < most; at += part) {
    Round round;
    round.call = call;
    int64_t begin = 0;
    for (const int64_t n : counts) {
      const int64_t done = std::min(n, at);
      round.begins.push_back(begin + done);
      round.counts.push_back(std::min(part, n - done));
      begin += n;
    }
    round.result = call.out + std::min(at, counts[static_cast<size_t>(rank())]) * call.item();
    rounds_.push_back(std::move(round));
  }
}

// Calls `post(from, to)`, which adds a receive and a send to `ids`, for each distance that has none
// yet. Returns whether all distances have them, so that the window holds none back.
template <typename Post>
bool BlockReduce::PostToAll(std::vector<Transfers::TransferId>* ids, const Post& post) {
  while (static_cast<int>(ids->size()) < 2 * (size() - 1)) {
    const int64_t posted = static_cast<int64_t>(ids->size());
    if (posted >= kExchangeWindow &&
        !transfers_->done((*ids)[static_cast<size_t>(posted - kExchangeWindow)])) {
      return false;
    }
    const int distance = static_cast<int>(posted) / 2 + 1;
    post(Neighbour(-distance), Neighbour(distance));
  }
  return true;
}

// Sends every rank its part of the round, and receives this rank's part from all.
bool BlockReduce::PostParts(RoundId id) {
  Round& round = At(id);
  const int64_t item = round.call.item();
  const int64_t own_bytes = round.counts[static_cast<size_t>(rank())] * item;
  char* const scratch = ScratchOf(id);
  return PostToAll(&round.parts, [&](int from, int to) {
    const size_t t = static_cast<size_t>(to);
    const int64_t slot = static_cast<int64_t>(round.parts.size() / 2);
    round.parts.push_back(
        transfers_->Receive(from, scratch + slot * own_bytes, own_bytes, Channel::kValues));
    round.parts.push_back(transfers_->Send(to, round.call.in + round.begins[t] * item,
                                           round.counts[t] * item, Channel::kValues));
  });
}

bool BlockReduce::AllDone(const std::vector<Transfers::TransferId>& ids) const {
  return std::all_of(ids.begin(), ids.end(),
                     [this](Transfers::TransferId id) { return transfers_->done(id); });
}

void BlockReduce::Reduce(RoundId id) {
  const Round& round = At(id);
  const Call& call = round.call;
  const int64_t item = call.item();
  const size_t own = static_cast<size_t>(rank());
  const int64_t count = round.counts[own];
  std::vector<const void*> inputs(round.counts.size());
  inputs[own] = call.in + round.begins[own] * item;
  for (int distance = 1; distance < size(); ++distance) {
    inputs[static_cast<size_t>(Neighbour(-distance))] =
        ScratchOf(id) + (distance - 1) * count * item;
  }
  ReduceRanks(round.result, inputs.data(), size(), count, call.dtype, call.reduction);
  transfers_->Poll();
}

// Sends this rank's result to all, and receives theirs.
bool BlockReduce::PostResults(Round* round) {
  if (!round->to_all) return true;
  const int64_t item = round->call.item();
  const int64_t own_bytes = round->counts[static_cast<size_t>(rank())] * item;
  return PostToAll(&round->results, [&](int from, int to) {
    const size_t f = static_cast<size_t>(from);
    round->results.push_back(transfers_->Receive(from, round->call.out + round->begins[f] * item,
                                                 round->counts[f] * item, Channel::kResults));
    round->results.push_back(transfers_->Send(to, round->result, own_bytes, Channel::kResults));
  });
}

void BlockReduce::Advance() {
  transfers_->Poll();
  bool moved = true;
  while (moved && !transfers_->failed()) {
    moved = false;
    while (posted_ < next() && posted_ < reduced_ + rounds_ahead_ && PostParts(posted_)) {
      ++posted_;
      moved = true;
    }
    if (reduced_ < posted_ && AllDone(At(reduced_).parts)) {
      Reduce(reduced_++);
      moved = true;
    }
    while (shared_ < reduced_ && PostResults(&At(shared_))) {
      ++shared_;
      moved = true;
    }
  }
  while (first_ < shared_ && AllDone(rounds_.front().results)) {
    rounds_.pop_front();
    ++first_;
  }
}

bool BlockReduce::Wait(RoundId end) {
  Advance();
  while (first_ < end && !transfers_->failed()) {
    if (transfers_->WaitForProgress()) Advance();
  }
  if (!transfers_->failed()) return true;
  rounds_.clear();
  first_ = posted_ = reduced_ = shared_ = end;
  return false;
}

}  // namespace tfhvd
