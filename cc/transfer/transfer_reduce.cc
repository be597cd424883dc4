#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "cc/transfer/transfer_communicator.h"

namespace tfhvd {

Status TransferCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                       const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(StartAllReduce(in, out, count, dtype, reduction));
  return FinishAllReduce();
}

Status TransferCommunicator::StartAllReduce(const void* in, void* out, int64_t count, DType dtype,
                                            const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  if (started_.empty()) TFHVD_RETURN_IF_ERROR(transfers_->Begin("allreduce"));
  const ReduceCall call = {static_cast<const char*>(in), static_cast<char*>(out), dtype, reduction};
  const int64_t bytes = count * call.item();
  if (size() == 1) {
    ReduceRanks(out, &in, 1, count, dtype, reduction);
  } else if (started_.empty() && IsGathered(bytes)) {
    ReduceGathered(call, count);
  } else {
    blocks_.AddAllReduce(call, count);
    blocks_.Advance();
  }
  started_.push_back(blocks_.next());
  return Status::Ok();
}

Status TransferCommunicator::FinishAllReduce() {
  (void)blocks_.Wait(started_.front());
  started_.pop_front();
  return started_.empty() || transfers_->failed() ? transfers_->End() : Status::Ok();
}

bool TransferCommunicator::IsGathered(int64_t bytes) {
  using Answer = GatherChoice::Answer;
  if (choice_.Of(bytes) == Answer::kMeasure) Measure();
  return choice_.Of(bytes) == Answer::kGather;
}

// Collective. The shortest times count: ranks come at different times, and other programs run.
void TransferCommunicator::Measure() {
  constexpr int kTimes = 3;
  const auto gather = [this](int64_t bytes) {
    const std::vector<int64_t> sizes(static_cast<size_t>(size()), bytes);
    char* const scratch = Scratch(bytes * size());
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      GatherDirectly(scratch, sizes);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      least = std::min(least, taken.count());
    }
    return least;
  };
  const double way = gather(1);
  const double probe = gather(GatherChoice::kProbeBytes);
  std::vector<int64_t> worth(static_cast<size_t>(size()));
  worth[static_cast<size_t>(rank())] = choice_.WorthOfAWay(way, probe);
  GatherDirectly(reinterpret_cast<char*>(worth.data()),
                 std::vector<int64_t>(worth.size(), sizeof(int64_t)));
  choice_.SetWorth(*std::min_element(worth.begin(), worth.end()));
}

void TransferCommunicator::ReduceGathered(const ReduceCall& call, int64_t count) {
  const int64_t bytes = count * call.item();
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

Status TransferCommunicator::ReduceScatter(const void* in, void* out,
                                           const std::vector<int64_t>& counts, DType dtype,
                                           const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  TFHVD_RETURN_IF_ERROR(transfers_->Begin("reducescatter"));
  const ReduceCall call = {static_cast<const char*>(in), static_cast<char*>(out), dtype, reduction};
  blocks_.AddScatter(call, counts);
  (void)blocks_.Wait(blocks_.next());
  return transfers_->End();
}

}  // namespace tfhvd
