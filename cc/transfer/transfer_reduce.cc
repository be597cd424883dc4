#include <algorithm>
#include <cstring>

#include "cc/transfer/transfer_communicator.h"

namespace tfhvd {
namespace {

constexpr int kFewRanks = 8;

// Up to so many bytes of all ranks together, or of each, everybody gets everything and reduces it:
// the values go one way, where in blocks they and then the results do.
constexpr int64_t kGatherTotal = 64 << 10;
constexpr int64_t kGatherEach = 1 << 10;
// So it does with few ranks, up to so many bytes together, where each sends at most so many more
// than in blocks. Two ranks send no more.
constexpr int64_t kGatherTotalOfFew = 1 << 20;
constexpr int64_t kGatherMore = 64 << 10;

bool IsGathered(int64_t bytes, int ranks) {
  if (bytes <= kGatherEach || bytes * ranks <= kGatherTotal) return true;
  if (ranks > kFewRanks || bytes * ranks > kGatherTotalOfFew) return false;
  // (ranks - 1) * bytes instead of 2 (ranks - 1) / ranks * bytes.
  return bytes * (ranks - 1) * (ranks - 2) / ranks <= kGatherMore;
}

}  // namespace

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
  } else if (started_.empty() && IsGathered(bytes, size())) {
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
