#include "cc/collectives/hierarchical/two_levels.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tfhvd {

TwoLevels::TwoLevels(HostLayout layout, int rank, std::unique_ptr<Communicator> local,
                     std::unique_ptr<Communicator> across, HierarchicalOptions options)
    : layout_(std::move(layout)),
      rank_(rank),
      host_(layout_.host_of[static_cast<size_t>(rank)]),
      local_(std::move(local)),
      across_(std::move(across)),
      options_(options),
      staging_(std::make_unique<StagingBuffers>()) {}

// Leaks the memory that a failed call may still write to.
TwoLevels::~TwoLevels() {
  if (!settled()) (void)staging_.release();
}

bool TwoLevels::settled() {
  const bool within = local_->settled();
  return (across_ == nullptr || across_->settled()) && within;
}

// Does nothing if the two are equal.
void TwoLevels::Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

// Writes a block and moves `*to` behind it.
void TwoLevels::Pack(const char* block, int64_t bytes, char** to) {
  Copy(*to, block, bytes);
  *to += bytes;
}

TwoLevels::Sizes TwoLevels::Divide(int64_t count, int lanes) const {
  Sizes parts(static_cast<size_t>(local_->size()), 0);
  const int64_t each = (count + lanes - 1) / lanes;
  for (int l = 0; l < lanes; ++l) {
    parts[static_cast<size_t>(l)] = std::clamp<int64_t>(count - l * each, 0, each);
  }
  return parts;
}

int64_t TwoLevels::BlockPiece(int64_t item) const {
  return std::max<int64_t>(1, options_.piece_bytes * layout_.lanes / size() / item);
}

TwoLevels::Sizes TwoLevels::PieceOf(const Sizes& sizes, int64_t done, int64_t most) {
  Sizes piece;
  for (const int64_t n : sizes) piece.push_back(std::clamp<int64_t>(n - done, 0, most));
  return piece;
}

TwoLevels::Sizes TwoLevels::ByHost(const Sizes& sizes, int lane) const {
  Sizes sums;
  for (int h = 0; h < layout_.hosts(); ++h) {
    int64_t sum = 0;
    for (const int r : layout_.InLane(h, lane)) sum += sizes[static_cast<size_t>(r)];
    sums.push_back(sum);
  }
  return sums;
}

}  // namespace tfhvd
