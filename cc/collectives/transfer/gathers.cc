#include "cc/collectives/transfer/gathers.h"

#include <algorithm>

namespace tfhvd {
namespace {

// A ring passes blocks on in pieces of this size, with this many receives posted ahead.
constexpr int64_t kRingPiece = kMessageBytes;
constexpr size_t kRingAhead = kBytesAhead / kRingPiece;

// A piece of a gathered block.
struct Piece {
  int64_t begin;
  int64_t bytes;
};

}  // namespace

// `out` holds this rank's block in its place.
void Gathers::Directly(char* out, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> begin = {0};
  for (const int64_t n : bytes) begin.push_back(begin.back() + n);
  const size_t own = static_cast<size_t>(transfers_->rank());
  for (int distance = 1; distance < transfers_->size(); ++distance) {
    const int from = transfers_->Neighbour(-distance);
    const size_t f = static_cast<size_t>(from);
    const int64_t most = std::max(bytes[f], bytes[own]);
    for (int64_t at = 0; at < most; at += kMessageBytes) {
      if (at < bytes[f]) {
        const int64_t part = std::min(kMessageBytes, bytes[f] - at);
        (void)transfers_->Receive(from, out + begin[f] + at, part);
      }
      if (at < bytes[own]) {
        const int64_t part = std::min(kMessageBytes, bytes[own] - at);
        (void)transfers_->Send(transfers_->Neighbour(distance), out + begin[own] + at, part);
      }
    }
  }
  (void)transfers_->Wait(0, transfers_->next());
}

// Bruck's algorithm: `rotated` holds the blocks of this rank, the next one, and so on in a circle;
// at first only its own, twice as many after each step.
void Gathers::ByDoubling(char* rotated, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> begin = {0};  // by distance from this rank
  for (int d = 0; d < transfers_->size(); ++d) {
    begin.push_back(begin.back() + bytes[static_cast<size_t>(transfers_->Neighbour(d))]);
  }
  for (int have = 1; have < transfers_->size(); have *= 2) {
    const size_t added = static_cast<size_t>(std::min(have, transfers_->size() - have));
    const size_t first = static_cast<size_t>(have);
    (void)transfers_->Send(transfers_->Neighbour(-have), rotated, begin[added]);
    if (!transfers_->Wait(transfers_->Receive(transfers_->Neighbour(have), rotated + begin[first],
                                              begin[first + added] - begin[first]))) {
      return;
    }
  }
  (void)transfers_->Wait(0, transfers_->next());
}

// Every rank passes to the right what comes from the left, piece by piece, its own block first.
// Step i sends the i-th piece. Receives are posted ahead, so that the left neighbour's i-th piece
// goes straight to its place, for any sizes of blocks.
void Gathers::AroundRing(char* out, const std::vector<int64_t>& bytes) {
  std::vector<int64_t> begin = {0};
  for (const int64_t n : bytes) begin.push_back(begin.back() + n);
  std::vector<Piece> pieces;  // in the order in which they pass through this rank
  size_t own = 0;             // pieces of its own block
  size_t sent = 0;            // the last block is the right neighbour's own
  for (int d = 0; d < transfers_->size(); ++d) {
    const size_t r = static_cast<size_t>(transfers_->Neighbour(-d));
    for (int64_t at = 0; at < bytes[r]; at += kRingPiece) {
      pieces.push_back({begin[r] + at, std::min(kRingPiece, bytes[r] - at)});
    }
    if (d == 0) own = pieces.size();
    if (d == transfers_->size() - 2) sent = pieces.size();
  }
  const size_t received = pieces.size() - own;
  std::vector<TransferId> receives;
  std::vector<TransferId> sends;
  for (size_t i = 0; i < std::max(sent, received); ++i) {
    while (receives.size() < std::min(received, i + kRingAhead)) {
      const Piece& piece = pieces[own + receives.size()];
      receives.push_back(
          transfers_->Receive(transfers_->Neighbour(-1), out + piece.begin, piece.bytes));
    }
    if (i >= sent) continue;
    if (i >= own && !transfers_->Wait(receives[i - own])) return;
    sends.push_back(
        transfers_->Send(transfers_->Neighbour(1), out + pieces[i].begin, pieces[i].bytes));
    if (i >= kRingAhead && !transfers_->Wait(sends[i - kRingAhead])) return;
  }
}

}  // namespace tfhvd
