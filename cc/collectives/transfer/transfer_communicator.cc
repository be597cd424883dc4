#include "cc/collectives/transfer/transfer_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace tfhvd {
namespace {

// The size of the pieces in which a broadcast passes the buffer down the tree, and the number of
// pieces sent ahead.
constexpr int64_t kBroadcastPiece = kMessageBytes;
constexpr int64_t kBroadcastAhead = kBytesAhead / kBroadcastPiece;

}  // namespace

TransferCommunicator::TransferCommunicator(std::unique_ptr<Transfers> transfers)
    : transfers_(std::move(transfers)),
      blocks_(transfers_.get()),
      gathers_(transfers_.get()),
      gathered_(transfers_.get(), &gathers_, &scratch_) {
  transfers_->SetOnWait([this](const tfhvd::Wait& wait) { return OnWait(wait); });
}

TransferCommunicator::~TransferCommunicator() {
  // The transport may still write into the scratch of a failed call, so it is leaked.
  if (!transfers_->Settle()) scratch_.Leak();
}

void TransferCommunicator::Abort(const Status& why) { transfers_->Abort(why); }

void TransferCommunicator::LimitWindow(TransferId begin) {
  const TransferId oldest = transfers_->next() - kExchangeWindow;
  if (oldest >= begin) (void)transfers_->Wait(oldest);
}

// Dissemination: after round k each rank knows, directly or not, of 2^(k+1) - 1 others.
Status TransferCommunicator::Barrier() {
  TFHVD_RETURN_IF_ERROR(transfers_->Begin("barrier"));
  const char sent = 0;
  char received = 0;
  for (int distance = 1; distance < size(); distance *= 2) {
    (void)transfers_->Send(transfers_->Neighbour(distance), &sent, 1);
    if (!transfers_->Wait(transfers_->Receive(transfers_->Neighbour(-distance), &received, 1)))
      break;
  }
  return transfers_->End();
}

Status TransferCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  TFHVD_RETURN_IF_ERROR(transfers_->Begin("broadcast"));
  BroadcastTree(static_cast<char*>(buffer), bytes, root);
  return transfers_->End();
}

// A tree, counted from the root, passes the buffer down piece by piece. A binomial tree for few
// bytes: rank v's parent is v without its lowest set bit. A chain for many bytes: each rank sends
// them only once, and the first to get a piece need not send it to several ranks.
void TransferCommunicator::BroadcastTree(char* buffer, int64_t bytes, int root) {
  const int v = (rank() - root + size()) % size();
  int steps = 0;  // of the binomial tree; the root would send everything so often
  while ((1 << steps) < size()) ++steps;
  const bool chain = (steps - 1) * bytes > (size() - 2) * kBroadcastPiece;
  int parent = (v - 1 + root + size()) % size();
  std::vector<int> children;  // the one with the largest subtree first
  if (chain) {
    if (v + 1 < size()) children.push_back((v + 1 + root) % size());
  } else {
    int subtree = 1;  // v's descendants are below v + subtree
    while (subtree < size() && (v & subtree) == 0) subtree *= 2;
    parent = (v - subtree + root + size()) % size();
    for (int step = subtree / 2; step > 0; step /= 2) {
      if (v + step < size()) children.push_back((v + step + root) % size());
    }
  }
  const int64_t pieces = (bytes + kBroadcastPiece - 1) / kBroadcastPiece;
  const auto size_of = [&](int64_t p) {
    return std::min(kBroadcastPiece, bytes - p * kBroadcastPiece);
  };
  std::vector<TransferId> received;
  std::vector<TransferId> sent;  // the first id of each piece
  for (int64_t p = 0; p < pieces; ++p) {
    while (v != 0 &&
           static_cast<int64_t>(received.size()) < std::min(pieces, p + kBroadcastAhead)) {
      const int64_t ahead = static_cast<int64_t>(received.size());
      received.push_back(
          transfers_->Receive(parent, buffer + ahead * kBroadcastPiece, size_of(ahead)));
    }
    if (v != 0 && !transfers_->Wait(received[static_cast<size_t>(p)])) return;
    sent.push_back(transfers_->next());
    for (const int child : children) {
      (void)transfers_->Send(child, buffer + p * kBroadcastPiece, size_of(p));
    }
    if (p >= kBroadcastAhead) {
      const TransferId begin = sent[static_cast<size_t>(p - kBroadcastAhead)];
      if (!transfers_->Wait(begin, begin + static_cast<TransferId>(children.size()))) return;
    }
  }
}

Status TransferCommunicator::AllToAll(const void* in, const std::vector<int64_t>& send_bytes,
                                      void* out, const std::vector<int64_t>& recv_bytes) {
  TFHVD_RETURN_IF_ERROR(transfers_->Begin("alltoall"));
  std::vector<int64_t> send_begin = {0};
  std::vector<int64_t> recv_begin = {0};
  for (const int64_t n : send_bytes) send_begin.push_back(send_begin.back() + n);
  for (const int64_t n : recv_bytes) recv_begin.push_back(recv_begin.back() + n);
  const char* const from = static_cast<const char*>(in);
  char* const to = static_cast<char*>(out);
  const size_t own = static_cast<size_t>(rank());
  if (recv_bytes[own] > 0) {
    std::memcpy(to + recv_begin[own], from + send_begin[own], static_cast<size_t>(recv_bytes[own]));
  }
  for (int distance = 1; distance < size(); ++distance) {
    const size_t before = static_cast<size_t>(transfers_->Neighbour(-distance));
    const size_t after = static_cast<size_t>(transfers_->Neighbour(distance));
    (void)transfers_->Receive(static_cast<int>(before), to + recv_begin[before],
                              recv_bytes[before]);
    (void)transfers_->Send(static_cast<int>(after), from + send_begin[after], send_bytes[after]);
    LimitWindow(0);
  }
  return transfers_->End();
}

Status TransferCommunicator::AllGather(const void* in, void* out,
                                       const std::vector<int64_t>& bytes) {
  TFHVD_RETURN_IF_ERROR(transfers_->Begin("allgather"));
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  const int64_t most = *std::max_element(bytes.begin(), bytes.end());
  char* const to = static_cast<char*>(out);
  const size_t own = static_cast<size_t>(rank());
  char* const address = to + std::accumulate(bytes.begin(), bytes.begin() + rank(), int64_t{0});
  if (bytes[own] > 0 && in != address) std::memmove(address, in, static_cast<size_t>(bytes[own]));
  if (!IsSmall(total, most)) {
    gathers_.AroundRing(to, bytes);
  } else if (size() <= kFewRanks) {
    gathers_.Directly(to, bytes);
  } else {
    // By doubling, each rank's own block comes first; afterwards all blocks are copied to their
    // places.
    char* const rotated = scratch_.Get(total);
    if (bytes[own] > 0) std::memcpy(rotated, address, static_cast<size_t>(bytes[own]));
    gathers_.ByDoubling(rotated, bytes);
    const int64_t before = address - to;
    if (total > before) std::memcpy(address, rotated, static_cast<size_t>(total - before));
    if (before > 0) std::memcpy(to, rotated + (total - before), static_cast<size_t>(before));
  }
  return transfers_->End();
}

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
  } else if (started_.empty() && gathered_.Suits(bytes)) {
    gathered_.Run(call, count);
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
