#include <algorithm>
#include <numeric>

#include "cc/backends/hierarchical/hierarchical_communicator.h"

namespace tfhvd {

HierarchicalCommunicator::ReduceCall HierarchicalCommunicator::MakeCall(
    DType dtype, const Reduction& reduction) {
  return {dtype, TypeBetween(dtype, reduction), reduction};
}

Reduction HierarchicalCommunicator::ReduceCall::within() const {
  Reduction within = Between(reduction);
  if (!wider()) within.prescale = reduction.prescale;
  return within;
}

Status HierarchicalCommunicator::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                           const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  const ReduceCall call = MakeCall(dtype, reduction);
  const int lanes = count * call.item() <= options_.small_bytes ? 1 : layout_.lanes;
  const int64_t piece = std::max<int64_t>(1, options_.piece_bytes / call.wide_item()) * lanes;
  for (int64_t done = 0; done < count; done += piece) {
    TFHVD_RETURN_IF_ERROR(ReducePiece(call, static_cast<const char*>(in) + done * call.item(),
                                      static_cast<char*>(out) + done * call.item(),
                                      std::min(piece, count - done), lanes));
  }
  return Status::Ok();
}

Status HierarchicalCommunicator::ReducePiece(const ReduceCall& call, const char* in, char* out,
                                             int64_t count, int lanes) {
  const void* values = in;
  if (call.wider()) {
    char* buffer = nullptr;
    TFHVD_RETURN_IF_ERROR(Get(LevelMemory::kPacked, count * call.wide_item(), &buffer));
    TFHVD_RETURN_IF_ERROR(memory_->Widen(buffer, in, count, call.dtype, call.reduction));
    values = buffer;
  }
  Sizes parts = Divide(count, lanes);
  const int64_t mine = parts[static_cast<size_t>(local_rank())];
  char* part = nullptr;
  TFHVD_RETURN_IF_ERROR(Get(LevelMemory::kPart, mine * call.wide_item(), &part));
  TFHVD_RETURN_IF_ERROR(local_->ReduceScatter(values, part, parts, call.between, call.within()));
  if (mine > 0) TFHVD_RETURN_IF_ERROR(ReduceAcross(call, part, mine));
  for (int64_t& n : parts) n *= call.item();
  return local_->AllGather(part, out, parts);
}

// Of a host's part makes the result of all, in place. Where the type is wider, a large
// part crosses the network in it only once, on the way to the sum.
Status HierarchicalCommunicator::ReduceAcross(const ReduceCall& call, char* part, int64_t count) {
  const Reduction across = Between(call.reduction);
  if (!call.wider() || count * call.wide_item() <= options_.small_bytes) {
    TFHVD_RETURN_IF_ERROR(across_->AllReduce(part, part, count, call.between, across));
    return memory_->Complete(part, part, size(), count, call.dtype, call.reduction);
  }
  const int64_t each = (count + layout_.hosts() - 1) / layout_.hosts();
  Sizes shares;
  for (int h = 0; h < layout_.hosts(); ++h) {
    shares.push_back(std::clamp<int64_t>(count - h * each, 0, each));
  }
  const int64_t mine = shares[static_cast<size_t>(host())];
  char* share = nullptr;
  TFHVD_RETURN_IF_ERROR(Get(LevelMemory::kShare, mine * call.wide_item(), &share));
  TFHVD_RETURN_IF_ERROR(across_->ReduceScatter(part, share, shares, call.between, across));
  TFHVD_RETURN_IF_ERROR(memory_->Complete(share, share, size(), mine, call.dtype, call.reduction));
  for (int64_t& n : shares) n *= call.item();
  return across_->AllGather(share, part, shares);
}

Status HierarchicalCommunicator::ReduceScatter(const void* in, void* out, const Sizes& counts,
                                               DType dtype, const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  const ReduceCall call = MakeCall(dtype, reduction);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const int64_t piece = BlockPiece(call.wide_item());
  for (int64_t done = 0; done < most; done += piece) {
    std::vector<const char*> blocks;
    const char* block = static_cast<const char*>(in);
    for (const int64_t n : counts) {
      blocks.push_back(block + std::min(n, done) * call.item());
      block += n * call.item();
    }
    const int64_t own_done = std::min(counts[static_cast<size_t>(rank())], done);
    TFHVD_RETURN_IF_ERROR(ScatterPiece(call, blocks, PieceOf(counts, done, piece),
                                       static_cast<char*>(out) + own_done * call.item()));
  }
  return Status::Ok();
}

// The ranks of a host reduce to each lane what is for its ranks on any host; the lanes reduce to
// each host what is for its ranks.
Status HierarchicalCommunicator::ScatterPiece(const ReduceCall& call,
                                              const std::vector<const char*>& blocks,
                                              const Sizes& counts, char* out) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  char* packed = nullptr;
  TFHVD_RETURN_IF_ERROR(Get(LevelMemory::kPacked, total * call.wide_item(), &packed));
  char* address = packed;
  Sizes lane_counts(static_cast<size_t>(local_->size()), 0);
  for (int l = 0; l < layout_.lanes; ++l) {
    for (int h = 0; h < layout_.hosts(); ++h) {
      for (const int r : layout_.InLane(h, l)) {
        const int64_t n = counts[static_cast<size_t>(r)];
        const char* const block = blocks[static_cast<size_t>(r)];
        TFHVD_RETURN_IF_ERROR(call.wider()
                                  ? memory_->Widen(address, block, n, call.dtype, call.reduction)
                                  : memory_->Copy(address, block, n * call.item()));
        address += n * call.wide_item();
        lane_counts[static_cast<size_t>(l)] += n;
      }
    }
  }
  char* part = nullptr;
  TFHVD_RETURN_IF_ERROR(Get(LevelMemory::kPart,
                            lane_counts[static_cast<size_t>(local_rank())] * call.wide_item(),
                            &part));
  TFHVD_RETURN_IF_ERROR(
      local_->ReduceScatter(packed, part, lane_counts, call.between, call.within()));
  char* results = nullptr;
  if (in_lane()) {
    const Sizes by_host = ByHost(counts, local_rank());
    const int64_t mine = by_host[static_cast<size_t>(host())];
    TFHVD_RETURN_IF_ERROR(Get(LevelMemory::kShare, mine * call.wide_item(), &results));
    TFHVD_RETURN_IF_ERROR(
        across_->ReduceScatter(part, results, by_host, call.between, Between(call.reduction)));
    TFHVD_RETURN_IF_ERROR(
        memory_->Complete(results, results, size(), mine, call.dtype, call.reduction));
  }
  Sizes bytes;
  for (const int64_t n : counts) bytes.push_back(n * call.item());
  return HandOut(results, bytes, out);
}

// Gives each rank of this host its own block of what its lane holds, one behind the other.
Status HierarchicalCommunicator::HandOut(const char* results, const Sizes& bytes, char* out) {
  const int64_t own = bytes[static_cast<size_t>(rank())];
  if (in_lane()) TFHVD_RETURN_IF_ERROR(memory_->Copy(out, results, own));
  if (!crowded()) return Status::Ok();
  Sizes send(static_cast<size_t>(local_->size()), 0);
  Sizes receive = send;
  if (in_lane()) {
    for (const int r : layout_.InLane(host(), local_rank())) {
      const size_t local = static_cast<size_t>(layout_.local_of[static_cast<size_t>(r)]);
      if (r != rank()) send[local] = bytes[static_cast<size_t>(r)];
    }
    results += own;
  } else {
    receive[static_cast<size_t>(layout_.LaneOf(rank()))] = own;
  }
  return local_->AllToAll(results, send, out, receive);
}

}  // namespace tfhvd
