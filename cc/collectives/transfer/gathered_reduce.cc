#include "cc/collectives/transfer/gathered_reduce.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "cc/numeric/arithmetic.h"

namespace tfhvd {

bool GatheredReduce::Suits(int64_t bytes) {
  using Answer = GatherChoice::Answer;
  if (choice_.Of(bytes) == Answer::kMeasure) Measure();
  return choice_.Of(bytes) == Answer::kGather;
}

// Collective. The shortest times count: ranks arrive at different times, and other programs run.
void GatheredReduce::Measure() {
  constexpr int kTimes = 3;
  const auto gather = [this](int64_t bytes) {
    const std::vector<int64_t> sizes(static_cast<size_t>(transfers_->size()), bytes);
    char* const scratch = scratch_->Get(bytes * transfers_->size());
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      gathers_->Directly(scratch, sizes);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      least = std::min(least, taken.count());
    }
    return least;
  };
  const double way = gather(1);
  const double probe = gather(GatherChoice::kProbeBytes);
  std::vector<int64_t> worth(static_cast<size_t>(transfers_->size()));
  worth[static_cast<size_t>(transfers_->rank())] = choice_.WorthOfAWay(way, probe);
  gathers_->Directly(reinterpret_cast<char*>(worth.data()),
                     std::vector<int64_t>(worth.size(), sizeof(int64_t)));
  choice_.SetWorth(*std::min_element(worth.begin(), worth.end()));
}

void GatheredReduce::Run(const BlockReduce::Call& call, int64_t count) {
  const int64_t bytes = count * call.item();
  if (bytes == 0) return;
  const int ranks = transfers_->size();
  const int own = transfers_->rank();
  const std::vector<int64_t> sizes(static_cast<size_t>(ranks), bytes);
  char* const scratch = scratch_->Get(bytes * ranks);
  const bool directly = ranks <= kFewRanks;
  const int own_block = directly ? own : 0;
  std::memcpy(scratch + own_block * bytes, call.in, static_cast<size_t>(bytes));
  if (directly) {
    gathers_->Directly(scratch, sizes);
  } else {
    gathers_->ByDoubling(scratch, sizes);
  }
  std::vector<const void*> inputs;
  for (int r = 0; r < ranks; ++r) {
    inputs.push_back(scratch + (directly ? r : (r - own + ranks) % ranks) * bytes);
  }
  ReduceRanks(call.out, inputs.data(), ranks, count, call.dtype, call.reduction);
}

}  // namespace tfhvd
