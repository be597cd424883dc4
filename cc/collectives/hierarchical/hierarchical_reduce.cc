#include "cc/collectives/hierarchical/hierarchical_reduce.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cc/numeric/arithmetic.h"

namespace tfhvd {

HierarchicalReduce::Call HierarchicalReduce::MakeCall(DType dtype,
                                                      const Reduction& reduction) const {
  Call call{dtype, TypeBetween(dtype, reduction), reduction, Between(reduction), false};
  const bool half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (half && !levels_->options().wide_floats && call.within.op == ReduceOp::kSum) {
    // If the sum is divided within the hosts, float16 overflows only if the result does.
    const double ranks = reduction.op == ReduceOp::kAverage ? levels_->size() : 1;
    call.between = dtype;
    call.within.postscale = reduction.postscale / ranks;
    call.completed = true;
  }
  // Values that are widened are prescaled in that step.
  if (!call.wider()) call.within.prescale = reduction.prescale;
  return call;
}

void HierarchicalReduce::Complete(const Call& call, char* values, int64_t count) const {
  if (call.completed) return;
  ::tfhvd::Complete(values, values, levels_->size(), count, call.dtype, call.reduction);
}

Status HierarchicalReduce::AllReduce(const void* in, void* out, int64_t count, DType dtype,
                                     const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  levels_->BeginCall();
  const Call call = MakeCall(dtype, reduction);
  std::deque<Piece> across;  // the pieces between the two levels, the oldest first
  Status status =
      ReducePieces(call, static_cast<const char*>(in), static_cast<char*>(out), count, &across);
  if (status.ok()) return status;
  // After this, the lane's remaining work for this call no longer touches this call's memory.
  if (levels_->across() != nullptr) levels_->across()->Abort(status);
  for (const Piece& piece : across) {
    if (piece.started) (void)levels_->across()->FinishAllReduce();
  }
  return status;
}

// While a piece crosses the network, the ranks of a host reduce the next one and combine the parts
// of the one before.
Status HierarchicalReduce::ReducePieces(const Call& call, const char* in, char* out, int64_t count,
                                        std::deque<Piece>* across) {
  const int lanes =
      count * call.item() <= levels_->options().small_bytes ? 1 : levels_->layout().lanes;
  const int64_t most =
      std::max<int64_t>(1, levels_->options().piece_bytes / call.wide_item()) * lanes;
  const int64_t slot = (std::min(count, most) + lanes - 1) / lanes * call.wide_item();
  char* const parts =
      levels_->Get(StagingBuffers::kPart, levels_->in_lane() ? kPiecesAcross * slot : 0);
  int64_t number = 0;
  for (int64_t done = 0; done < count; done += most, ++number) {
    if (across->size() == kPiecesAcross) TFHVD_RETURN_IF_ERROR(FinishPiece(call, across));
    Piece piece;
    piece.counts = levels_->Divide(std::min(most, count - done), lanes);
    piece.part = parts + (levels_->in_lane() ? number % kPiecesAcross * slot : 0);
    piece.out = out + done * call.item();
    TFHVD_RETURN_IF_ERROR(ReduceWithin(call, in + done * call.item(), piece));
    levels_->options().failpoints.Hit(Failpoint::kHostReduced);
    across->push_back(std::move(piece));
    TFHVD_RETURN_IF_ERROR(StartAcross(call, &across->back()));
  }
  while (!across->empty()) TFHVD_RETURN_IF_ERROR(FinishPiece(call, across));
  return Status::Ok();
}

// Reduces a piece of the values to the part that this rank takes across.
Status HierarchicalReduce::ReduceWithin(const Call& call, const char* in, const Piece& piece) {
  const void* values = in;
  if (call.wider()) {
    const int64_t count = std::accumulate(piece.counts.begin(), piece.counts.end(), int64_t{0});
    char* const buffer = levels_->Get(StagingBuffers::kPacked, count * call.wide_item());
    Widen(buffer, in, count, call.dtype, call.reduction);
    values = buffer;
  }
  return levels_->local()->ReduceScatter(values, piece.part, piece.counts, call.between,
                                         call.within);
}

Status HierarchicalReduce::StartAcross(const Call& call, Piece* piece) {
  const int64_t mine = piece->counts[static_cast<size_t>(levels_->local_rank())];
  if (mine == 0) return Status::Ok();
  if (call.wider() && mine * call.wide_item() > levels_->options().small_bytes) {
    return ReduceWideAcross(call, piece->part, mine);
  }
  TFHVD_RETURN_IF_ERROR(levels_->across()->StartAllReduce(piece->part, piece->part, mine,
                                                          call.between, Between(call.reduction)));
  piece->started = true;
  return Status::Ok();
}

// Combines the parts of the oldest piece.
Status HierarchicalReduce::FinishPiece(const Call& call, std::deque<Piece>* across) {
  Piece& piece = across->front();
  if (piece.started) {
    piece.started = false;
    TFHVD_RETURN_IF_ERROR(levels_->across()->FinishAllReduce());
    Complete(call, piece.part, piece.counts[static_cast<size_t>(levels_->local_rank())]);
  }
  for (int64_t& n : piece.counts) n *= call.item();
  TFHVD_RETURN_IF_ERROR(levels_->local()->AllGather(piece.part, piece.out, piece.counts));
  across->pop_front();
  return Status::Ok();
}

// Turns a host's part into the result of all, in place. It crosses the network in the wider type
// only once, on the way to the sum.
Status HierarchicalReduce::ReduceWideAcross(const Call& call, char* part, int64_t count) {
  const int64_t each = (count + levels_->layout().hosts() - 1) / levels_->layout().hosts();
  Sizes shares;
  for (int h = 0; h < levels_->layout().hosts(); ++h) {
    shares.push_back(std::clamp<int64_t>(count - h * each, 0, each));
  }
  const int64_t mine = shares[static_cast<size_t>(levels_->host())];
  char* const share = levels_->Get(StagingBuffers::kShare, mine * call.wide_item());
  TFHVD_RETURN_IF_ERROR(
      levels_->across()->ReduceScatter(part, share, shares, call.between, Between(call.reduction)));
  Complete(call, share, mine);
  for (int64_t& n : shares) n *= call.item();
  return levels_->across()->AllGather(share, part, shares);
}

Status HierarchicalReduce::ReduceScatter(const void* in, void* out, const Sizes& counts,
                                         DType dtype, const Reduction& reduction) {
  TFHVD_RETURN_IF_ERROR(CheckReduction(dtype, reduction));
  levels_->BeginCall();
  const Call call = MakeCall(dtype, reduction);
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const int64_t piece = levels_->BlockPiece(call.wide_item());
  for (int64_t done = 0; done < most; done += piece) {
    std::vector<const char*> blocks;
    const char* block = static_cast<const char*>(in);
    for (const int64_t n : counts) {
      blocks.push_back(block + std::min(n, done) * call.item());
      block += n * call.item();
    }
    const int64_t own_done = std::min(counts[static_cast<size_t>(levels_->rank())], done);
    TFHVD_RETURN_IF_ERROR(ScatterPiece(call, blocks, TwoLevels::PieceOf(counts, done, piece),
                                       static_cast<char*>(out) + own_done * call.item()));
  }
  return Status::Ok();
}

// The ranks of a host reduce to each lane the values for its ranks on any host; the lanes reduce to
// each host the values for its ranks.
Status HierarchicalReduce::ScatterPiece(const Call& call, const std::vector<const char*>& blocks,
                                        const Sizes& counts, char* out) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  char* const packed = levels_->Get(StagingBuffers::kPacked, total * call.wide_item());
  char* address = packed;
  Sizes lane_counts(static_cast<size_t>(levels_->local()->size()), 0);
  for (int l = 0; l < levels_->layout().lanes; ++l) {
    for (int h = 0; h < levels_->layout().hosts(); ++h) {
      for (const int r : levels_->layout().InLane(h, l)) {
        const int64_t n = counts[static_cast<size_t>(r)];
        const char* const block = blocks[static_cast<size_t>(r)];
        if (call.wider()) {
          Widen(address, block, n, call.dtype, call.reduction);
        } else {
          TwoLevels::Copy(address, block, n * call.item());
        }
        address += n * call.wide_item();
        lane_counts[static_cast<size_t>(l)] += n;
      }
    }
  }
  char* const part =
      levels_->Get(StagingBuffers::kPart,
                   lane_counts[static_cast<size_t>(levels_->local_rank())] * call.wide_item());
  TFHVD_RETURN_IF_ERROR(
      levels_->local()->ReduceScatter(packed, part, lane_counts, call.between, call.within));
  char* results = nullptr;
  if (levels_->in_lane()) {
    const Sizes by_host = levels_->ByHost(counts, levels_->local_rank());
    const int64_t mine = by_host[static_cast<size_t>(levels_->host())];
    results = levels_->Get(StagingBuffers::kShare, mine * call.wide_item());
    TFHVD_RETURN_IF_ERROR(levels_->across()->ReduceScatter(part, results, by_host, call.between,
                                                           Between(call.reduction)));
    Complete(call, results, mine);
  }
  Sizes bytes;
  for (const int64_t n : counts) bytes.push_back(n * call.item());
  return HandOut(results, bytes, out);
}

// Gives each rank of this host its block of its lane's results, which are one after the other.
Status HierarchicalReduce::HandOut(const char* results, const Sizes& bytes, char* out) {
  const int64_t own = bytes[static_cast<size_t>(levels_->rank())];
  if (levels_->in_lane()) TwoLevels::Copy(out, results, own);
  if (!levels_->crowded()) return Status::Ok();
  Sizes send(static_cast<size_t>(levels_->local()->size()), 0);
  Sizes receive = send;
  if (levels_->in_lane()) {
    for (const int r : levels_->layout().InLane(levels_->host(), levels_->local_rank())) {
      const size_t local = static_cast<size_t>(levels_->layout().local_of[static_cast<size_t>(r)]);
      if (r != levels_->rank()) send[local] = bytes[static_cast<size_t>(r)];
    }
    results += own;
  } else {
    receive[static_cast<size_t>(levels_->layout().LaneOf(levels_->rank()))] = own;
  }
  return levels_->local()->AllToAll(results, send, out, receive);
}

}  // namespace tfhvd
