#include "cc/backends/inproc/inproc_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace tfhvd {
namespace {

// The size of blocks: the result of a block is copied to the other ranks while it is still in the
// cache.
constexpr int64_t kBlockBytes = 128 << 10;

void Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

// Returns the sum of the entries before `index`.
int64_t OffsetOf(const std::vector<int64_t>& sizes, int index) {
  return std::accumulate(sizes.begin(), sizes.begin() + index, int64_t{0});
}

}  // namespace

InprocCommunicator::InprocCommunicator(std::shared_ptr<CallBarrier> barrier,
                                       std::vector<int> members, int rank)
    : barrier_(std::move(barrier)), members_(std::move(members)), rank_(rank) {}

Status InprocCommunicator::Begin(InprocCall call) {
  return barrier_->Begin(rank_, std::move(call), on_wait_);
}

Status InprocCommunicator::End() { return barrier_->End(rank_, on_wait_); }

Status InprocCommunicator::StillWaits(const std::vector<int>& missing, double seconds) {
  Wait wait;
  wait.call = "collective of threads";
  for (const int r : missing) wait.ranks.push_back(members_[static_cast<size_t>(r)]);
  wait.seconds = seconds;
  return OnWait(wait);
}

// Rank r computes the r-th part of the result and writes it into every rank's output. No other rank
// reads or writes that part of any buffer, so input and output may be the same.
Status InprocCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                     const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  InprocCall call;
  call.kind = Collective::kAllReduce;
  call.in = static_cast<const char*>(in);
  call.out = static_cast<char*>(out);
  call.sizes = {count};
  call.dtype = dtype;
  call.reduction = reduction;
  TFHVD_RETURN_IF_ERROR(Begin(std::move(call)));
  const int64_t item = ItemSize(dtype);
  const int64_t part = (count + size() - 1) / size();
  const int64_t end = std::min(count, part * (rank_ + 1));
  const int64_t block = kBlockBytes / item;
  std::vector<const void*> inputs(static_cast<size_t>(size()));
  for (int64_t begin = part * rank_; begin < end; begin += block) {
    const int64_t n = std::min(block, end - begin);
    for (int r = 0; r < size(); ++r) {
      inputs[static_cast<size_t>(r)] = barrier_->call(r).in + begin * item;
    }
    char* const result = static_cast<char*>(out) + begin * item;
    ReduceRanks(result, inputs.data(), size(), n, dtype, reduction);
    for (int r = 0; r < size(); ++r) {
      Copy(barrier_->call(r).out + begin * item, result, n * item);
    }
  }
  return End();
}

Status InprocCommunicator::StartAllReduce(const void* in, void* out, int64_t count, DType dtype,
                                          const Reduction& reduction) {
  started_.emplace_back([=] { return AllReduce(in, out, count, dtype, reduction); });
  return Status::Ok();
}

Status InprocCommunicator::FinishAllReduce() {
  const std::function<Status()> run = std::move(started_.front());
  started_.pop_front();
  return run();
}

Status InprocCommunicator::AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) {
  InprocCall call;
  call.kind = Collective::kAllGather;
  call.sizes = bytes;
  // The others read this rank's block from the output, where it has to be anyway.
  char* const own = static_cast<char*>(out) + OffsetOf(bytes, rank_);
  Copy(own, in, bytes[static_cast<size_t>(rank_)]);
  call.in = own;
  TFHVD_RETURN_IF_ERROR(Begin(std::move(call)));
  char* index = static_cast<char*>(out);
  for (int r = 0; r < size(); ++r) {
    const int64_t n = bytes[static_cast<size_t>(r)];
    Copy(index, barrier_->call(r).in, n);
    index += n;
  }
  return End();
}

Status InprocCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  InprocCall call;
  call.kind = Collective::kBroadcast;
  call.in = static_cast<const char*>(buffer);
  call.sizes = {bytes};
  call.root = root;
  TFHVD_RETURN_IF_ERROR(Begin(std::move(call)));
  Copy(buffer, barrier_->call(root).in, bytes);
  return End();
}

Status InprocCommunicator::ReduceScatter(const void* in, void* out,
                                         const std::vector<int64_t>& counts, DType dtype,
                                         const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  InprocCall call;
  call.kind = Collective::kReduceScatter;
  call.in = static_cast<const char*>(in);
  call.sizes = counts;
  call.dtype = dtype;
  call.reduction = reduction;
  TFHVD_RETURN_IF_ERROR(Begin(std::move(call)));
  const int64_t offset = OffsetOf(counts, rank_) * ItemSize(dtype);
  std::vector<const void*> inputs(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    inputs[static_cast<size_t>(r)] = barrier_->call(r).in + offset;
  }
  ReduceRanks(out, inputs.data(), size(), counts[static_cast<size_t>(rank_)], dtype, reduction);
  return End();
}

Status InprocCommunicator::AllToAll(const void* in, const std::vector<int64_t>& send_bytes,
                                    void* out, const std::vector<int64_t>& recv_bytes) {
  InprocCall call;
  call.kind = Collective::kAllToAll;
  call.in = static_cast<const char*>(in);
  call.sizes = send_bytes;
  TFHVD_RETURN_IF_ERROR(Begin(std::move(call)));
  char* index = static_cast<char*>(out);
  for (int r = 0; r < size(); ++r) {
    const InprocCall& peer = barrier_->call(r);
    const int64_t sent = peer.sizes[static_cast<size_t>(rank_)];
    const int64_t expected = recv_bytes[static_cast<size_t>(r)];
    if (sent != expected) {
      barrier_->Abort(Status::Internal("An alltoall's sizes do not fit: rank " + std::to_string(r) +
                                       " sends " + std::to_string(sent) + " bytes to rank " +
                                       std::to_string(rank_) + ", which expects " +
                                       std::to_string(expected) + "."));
      break;
    }
    Copy(index, peer.in + OffsetOf(peer.sizes, rank_), sent);
    index += sent;
  }
  return End();
}

Status InprocCommunicator::Barrier() {
  TFHVD_RETURN_IF_ERROR(Begin(InprocCall()));
  return End();
}

Status InprocCommunicator::Poll() { return barrier_->aborted(rank_); }

void InprocCommunicator::Abort(const Status& why) { barrier_->AbortRank(rank_, why); }

}  // namespace tfhvd
