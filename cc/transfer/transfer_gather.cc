#include <algorithm>
#include <cstring>
#include <numeric>

#include "cc/transfer/transfer_communicator.h"

namespace tfhvd {
namespace {

// A ring passes blocks on in pieces of this size, with this many receives ahead.
constexpr int64_t kRingPiece = kMessageBytes;
constexpr size_t kRingAhead = kBytesAhead / kRingPiece;

// A piece of a gathered block.
struct Piece {
  int64_t begin;
  int64_t bytes;
};

}  // namespace

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
    GatherAroundRing(to, bytes);
  } else if (size() <= kFewRanks) {
    GatherDirectly(to, bytes);
  } else {
    // By doubling, each rank's own block comes first; at the end all go to their places.
    char* const rotated = Scratch(total);
    if (bytes[own] > 0) std::memcpy(rotated, address, static_cast<size_t>(bytes[own]));
    GatherByDoubling(rotated, bytes);
    const int64_t before = address - to;
    if (total > before) std::memcpy(address, rotated, static_cast<size_t>(total - before));
    if (before > 0) std::memcpy(to, rotated + (total - before), static_cast<size_t>(before));
  }
  return transfers_->End();
}

// `out` holds this rank's block where it belongs.
void TransferCommunicator::GatherDirectly(char* out, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> begin = {0};
  for (const int64_t n : bytes) begin.push_back(begin.back() + n);
  const size_t own = static_cast<size_t>(rank());
  for (int distance = 1; distance < size(); ++distance) {
    const int from = Neighbour(-distance);
    const size_t f = static_cast<size_t>(from);
    const int64_t most = std::max(bytes[f], bytes[own]);
    for (int64_t at = 0; at < most; at += kMessageBytes) {
      if (at < bytes[f]) {
        const int64_t part = std::min(kMessageBytes, bytes[f] - at);
        (void)transfers_->Receive(from, out + begin[f] + at, part);
      }
      if (at < bytes[own]) {
        const int64_t part = std::min(kMessageBytes, bytes[own] - at);
        (void)transfers_->Send(Neighbour(distance), out + begin[own] + at, part);
      }
    }
  }
  (void)transfers_->Wait(0, transfers_->next());
}

// Bruck's algorithm: `rotated` holds the blocks of this rank, the next one, and so on around; at
// first only its own, twice as many after each step.
void TransferCommunicator::GatherByDoubling(char* rotated, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> begin = {0};  // by distance from this rank
  for (int d = 0; d < size(); ++d) {
    begin.push_back(begin.back() + bytes[static_cast<size_t>(Neighbour(d))]);
  }
  for (int have = 1; have < size(); have *= 2) {
    const size_t added = static_cast<size_t>(std::min(have, size() - have));
    const size_t first = static_cast<size_t>(have);
    (void)transfers_->Send(Neighbour(-have), rotated, begin[added]);
    if (!transfers_->Wait(transfers_->Receive(Neighbour(have), rotated + begin[first],
                                              begin[first + added] - begin[first]))) {
      return;
    }
  }
  (void)transfers_->Wait(0, transfers_->next());
}

// Every rank passes to the right what comes from the left, piece by piece, its own block first.
// Step i sends the i-th piece; receives are posted ahead, so that the left neighbour's i-th piece
// finds where it belongs, whatever the sizes of the blocks are.
void TransferCommunicator::GatherAroundRing(char* out, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> begin = {0};
  for (const int64_t n : bytes) begin.push_back(begin.back() + n);
  std::vector<Piece> pieces;  // in the order in which they pass through this rank
  size_t own = 0;             // pieces of its own block
  size_t sent = 0;            // the last block is the right neighbour's own
  for (int d = 0; d < size(); ++d) {
    const size_t r = static_cast<size_t>(Neighbour(-d));
    for (int64_t at = 0; at < bytes[r]; at += kRingPiece) {
      pieces.push_back({begin[r] + at, std::min(kRingPiece, bytes[r] - at)});
    }
    if (d == 0) own = pieces.size();
    if (d == size() - 2) sent = pieces.size();
  }
  const size_t received = pieces.size() - own;
  std::vector<TransferId> receives;
  std::vector<TransferId> sends;
  for (size_t i = 0; i < std::max(sent, received); ++i) {
    while (receives.size() < std::min(received, i + kRingAhead)) {
      const Piece& piece = pieces[own + receives.size()];
      receives.push_back(transfers_->Receive(Neighbour(-1), out + piece.begin, piece.bytes));
    }
    if (i >= sent) continue;
    if (i >= own && !transfers_->Wait(receives[i - own])) return;
    sends.push_back(transfers_->Send(Neighbour(1), out + pieces[i].begin, pieces[i].bytes));
    if (i >= kRingAhead && !transfers_->Wait(sends[i - kRingAhead])) return;
  }
}

}  // namespace tfhvd
