#include <algorithm>
#include <cstring>
#include <numeric>

#include "cc/backends/mpi/mpi_communicator.h"

namespace tfhvd {
namespace {

// Up to so many bytes of all ranks together, or of each, everybody gets everything and reduces it.
constexpr int64_t kGatherTotal = 64 << 10;
constexpr int64_t kGatherEach = 1 << 10;
constexpr int kFewRanks = 8;

// A large tensor is reduced in rounds, in each of which a rank reduces a part of this size; with
// many ranks less, so that the parts of all ranks together stay within kRoundBytes. Two rounds are
// under way at once.
constexpr int64_t kPartBytes = 512 << 10;
constexpr int64_t kLeastPartBytes = 16 << 10;
constexpr int64_t kRoundBytes = 8 << 20;
constexpr int kRoundsAhead = 2;

// Messages move on between pieces of arithmetic of this size.
constexpr int64_t kPollBytes = 128 << 10;

}  // namespace

struct MpiCommunicator::Round {
  TransferId begin = 0;  // its transfers
  TransferId end = 0;
  int64_t count = 0;                // elements that this rank reduces
  std::vector<const char*> inputs;  // theirs, by rank
};

int64_t MpiCommunicator::PartItems(int64_t item) const {
  return std::max(kLeastPartBytes, std::min(kPartBytes, kRoundBytes / size())) / item;
}

Status MpiCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                  const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  TFHVD_RETURN_IF_ERROR(transfers_.Begin("allreduce"));
  const ReduceCall call = {static_cast<const char*>(in), static_cast<char*>(out), dtype,
                           ItemSize(dtype), reduction};
  const int64_t bytes = count * call.item;
  if (size() == 1) {
    ReduceRanks(out, &in, 1, count, dtype, reduction);
  } else if (bytes * size() <= kGatherTotal || bytes <= kGatherEach) {
    ReduceGathered(call, count);
  } else {
    ReduceInBlocks(call, count);
  }
  return transfers_.End();
}

void MpiCommunicator::ReduceGathered(const ReduceCall& call, int64_t count) {
  const int64_t bytes = count * call.item;
  if (bytes == 0) return;
  const std::vector<int64_t> sizes(static_cast<size_t>(size()), bytes);
  char* const scratch = Scratch(bytes * size());
  const bool directly = size() <= kFewRanks;
  const int own_block = directly ? rank() : 0;
  std::memcpy(scratch + own_block * bytes, call.in, static_cast<size_t>(bytes));
  if (directly) {
    GatherDirectly(scratch, sizes);
  } else {
    GatherByDoubling(scratch, sizes);
  }
  std::vector<const void*> inputs;
  for (int r = 0; r < size(); ++r) {
    inputs.push_back(scratch + (directly ? r : (r - rank() + size()) % size()) * bytes);
  }
  ReduceRanks(call.out, inputs.data(), size(), count, call.dtype, call.reduction);
}

// Starts to send every rank its elements [begins[r], + counts[r]) of the input, and to receive this
// rank's from all others into `scratch`.
MpiCommunicator::Round MpiCommunicator::StartExchange(const ReduceCall& call, char* scratch,
                                                      const std::vector<int64_t>& begins,
                                                      const std::vector<int64_t>& counts) {
  const size_t own = static_cast<size_t>(rank());
  Round round;
  round.begin = transfers_.next();
  round.count = counts[own];
  const int64_t own_bytes = counts[own] * call.item;
  round.inputs.assign(counts.size(), call.in + begins[own] * call.item);
  for (int distance = 1; distance < size(); ++distance) {
    const int from = Neighbour(-distance);
    const int to = Neighbour(distance);
    char* const address = scratch + (distance - 1) * own_bytes;
    round.inputs[static_cast<size_t>(from)] = address;
    (void)transfers_.Receive(from, address, own_bytes);
    (void)transfers_.Send(to, call.in + begins[static_cast<size_t>(to)] * call.item,
                          counts[static_cast<size_t>(to)] * call.item);
    LimitWindow(round.begin);
  }
  round.end = transfers_.next();
  return round;
}

// Waits for the round's messages and reduces them into `result`.
bool MpiCommunicator::FinishExchange(const ReduceCall& call, const Round& round, char* result) {
  if (!transfers_.Wait(round.begin, round.end)) return false;
  const int64_t piece = kPollBytes / call.item;
  std::vector<const void*> inputs(round.inputs.size());
  for (int64_t begin = 0; begin < round.count; begin += piece) {
    for (size_t r = 0; r < inputs.size(); ++r) inputs[r] = round.inputs[r] + begin * call.item;
    ReduceRanks(result + begin * call.item, inputs.data(), size(),
                std::min(piece, round.count - begin), call.dtype, call.reduction);
    transfers_.Poll();
  }
  return true;
}

// In each round every rank gets one part of the block from all ranks, reduces it, and sends the
// result to all. Input and output may be the same: a part of the output is received only after the
// same part of the input has been sent.
void MpiCommunicator::ReduceInBlocks(const ReduceCall& call, int64_t count) {
  const int64_t part = PartItems(call.item);
  const int64_t block = part * size();
  const int64_t rounds = (count + block - 1) / block;
  char* const scratch = Scratch(kRoundsAhead * (size() - 1) * part * call.item);
  const size_t ranks = static_cast<size_t>(size());
  std::vector<int64_t> begins(ranks);
  std::vector<int64_t> counts(ranks);
  const auto divide = [&](int64_t k) {
    const int64_t end = std::min(count, (k + 1) * block);
    const int64_t each = (end - k * block + size() - 1) / size();
    for (size_t r = 0; r < ranks; ++r) {
      begins[r] = std::min(end, k * block + each * static_cast<int64_t>(r));
      counts[r] = std::min(each, end - begins[r]);
    }
  };
  Round under_way[kRoundsAhead];
  const auto start = [&](int64_t k) {
    divide(k);
    const int64_t slot = k % kRoundsAhead;
    under_way[slot] =
        StartExchange(call, scratch + slot * (size() - 1) * part * call.item, begins, counts);
  };
  for (int64_t k = 0; k < std::min<int64_t>(rounds, kRoundsAhead); ++k) start(k);
  for (int64_t k = 0; k < rounds; ++k) {
    divide(k);
    const size_t own = static_cast<size_t>(rank());
    char* const result = call.out + begins[own] * call.item;
    if (!FinishExchange(call, under_way[k % kRoundsAhead], result)) return;
    const TransferId begin = transfers_.next();
    for (int distance = 1; distance < size(); ++distance) {
      const int from = Neighbour(-distance);
      const size_t f = static_cast<size_t>(from);
      (void)transfers_.Receive(from, call.out + begins[f] * call.item, counts[f] * call.item);
      (void)transfers_.Send(Neighbour(distance), result, counts[own] * call.item);
      LimitWindow(begin);
    }
    if (k + kRoundsAhead < rounds) start(k + kRoundsAhead);
  }
}

Status MpiCommunicator::ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts,
                                      DType dtype, const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  TFHVD_RETURN_IF_ERROR(transfers_.Begin("reducescatter"));
  const ReduceCall call = {static_cast<const char*>(in), static_cast<char*>(out), dtype,
                           ItemSize(dtype), reduction};
  const int64_t part = PartItems(call.item);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const int64_t rounds = (most + part - 1) / part;
  const int64_t slot_bytes = (size() - 1) * std::min(part, most) * call.item;
  char* const scratch = Scratch(kRoundsAhead * slot_bytes);
  Round under_way[kRoundsAhead];
  const auto start = [&](int64_t k) {  // the k-th part of every rank's elements
    std::vector<int64_t> begins;
    std::vector<int64_t> sizes;
    int64_t begin = 0;
    for (const int64_t n : counts) {
      const int64_t done = std::min(n, k * part);
      begins.push_back(begin + done);
      sizes.push_back(std::min(part, n - done));
      begin += n;
    }
    const int64_t slot = k % kRoundsAhead;
    under_way[slot] = StartExchange(call, scratch + slot * slot_bytes, begins, sizes);
  };
  for (int64_t k = 0; k < std::min<int64_t>(rounds, kRoundsAhead); ++k) start(k);
  for (int64_t k = 0; k < rounds; ++k) {
    char* const result =
        call.out + std::min(k * part, counts[static_cast<size_t>(rank())]) * call.item;
    if (!FinishExchange(call, under_way[k % kRoundsAhead], result)) break;
    if (k + kRoundsAhead < rounds) start(k + kRoundsAhead);
  }
  return transfers_.End();
}

}  // namespace tfhvd
