#include "cc/backends/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace tfhvd {

HierarchicalCommunicator::HierarchicalCommunicator(HostLayout layout, int rank,
                                                   std::unique_ptr<Communicator> local,
                                                   std::unique_ptr<Communicator> across,
                                                   HierarchicalOptions options)
    : layout_(std::move(layout)),
      rank_(rank),
      host_(layout_.host_of[static_cast<size_t>(rank)]),
      local_(std::move(local)),
      across_(std::move(across)),
      options_(options),
      staging_(std::make_unique<StagingBuffers>()) {}

// What a call that failed may still write to is left to the end of the process.
HierarchicalCommunicator::~HierarchicalCommunicator() {
  if (!settled()) (void)staging_.release();
}

void HierarchicalCommunicator::Abort(const Status& why) {
  local_->Abort(why);
  if (across_ != nullptr) across_->Abort(why);
}

bool HierarchicalCommunicator::settled() {
  const bool within = local_->settled();
  return (across_ == nullptr || across_->settled()) && within;
}

void HierarchicalCommunicator::SetWaitMonitor(WaitMonitor* monitor) {
  Communicator::SetWaitMonitor(monitor);
  local_->SetWaitMonitor(monitor);
  if (across_ != nullptr) across_->SetWaitMonitor(monitor);
}

// Where the two are the same it does nothing.
void HierarchicalCommunicator::Copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

// Writes a block and moves on behind it.
void HierarchicalCommunicator::Pack(const char* block, int64_t bytes, char** to) {
  Copy(*to, block, bytes);
  *to += bytes;
}

Status HierarchicalCommunicator::Poll() {
  TFHVD_RETURN_IF_ERROR(local_->Poll());
  return across_ != nullptr ? across_->Poll() : Status::Ok();
}

Status HierarchicalCommunicator::Barrier() {
  TFHVD_RETURN_IF_ERROR(local_->Barrier());
  if (local_rank() == 0) TFHVD_RETURN_IF_ERROR(across_->Barrier());
  return local_->Barrier();
}

HierarchicalCommunicator::Sizes HierarchicalCommunicator::Divide(int64_t count, int lanes) const {
  Sizes parts(static_cast<size_t>(local_->size()), 0);
  const int64_t each = (count + lanes - 1) / lanes;
  for (int l = 0; l < lanes; ++l) {
    parts[static_cast<size_t>(l)] = std::clamp<int64_t>(count - l * each, 0, each);
  }
  return parts;
}

int64_t HierarchicalCommunicator::BlockPiece(int64_t item) const {
  return std::max<int64_t>(1, options_.piece_bytes * layout_.lanes / size() / item);
}

HierarchicalCommunicator::Sizes HierarchicalCommunicator::PieceOf(const Sizes& sizes, int64_t done,
                                                                  int64_t most) {
  Sizes piece;
  for (const int64_t n : sizes) piece.push_back(std::clamp<int64_t>(n - done, 0, most));
  return piece;
}

HierarchicalCommunicator::Sizes HierarchicalCommunicator::ByHost(const Sizes& sizes,
                                                                 int lane) const {
  Sizes sums;
  for (int h = 0; h < layout_.hosts(); ++h) {
    int64_t sum = 0;
    for (const int r : layout_.InLane(h, lane)) sum += sizes[static_cast<size_t>(r)];
    sums.push_back(sum);
  }
  return sums;
}

Status HierarchicalCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  const int lanes = bytes <= options_.small_bytes ? 1 : layout_.lanes;
  const int64_t piece = options_.piece_bytes * lanes;
  for (int64_t done = 0; done < bytes; done += piece) {
    TFHVD_RETURN_IF_ERROR(BroadcastPiece(static_cast<char*>(buffer) + done,
                                         std::min(piece, bytes - done), root, lanes));
  }
  return Status::Ok();
}

// On the root's host every rank gets everything; the lanes take parts of it to the other hosts.
Status HierarchicalCommunicator::BroadcastPiece(char* buffer, int64_t bytes, int root, int lanes) {
  const Sizes parts = Divide(bytes, lanes);
  const int64_t part = parts[static_cast<size_t>(local_rank())];
  const int root_host = layout_.host_of[static_cast<size_t>(root)];
  if (host() == root_host) {
    TFHVD_RETURN_IF_ERROR(
        local_->Broadcast(buffer, bytes, layout_.local_of[static_cast<size_t>(root)]));
    if (part == 0) return Status::Ok();
    char* const mine =
        buffer + std::accumulate(parts.begin(), parts.begin() + local_rank(), int64_t{0});
    return across_->Broadcast(mine, part, root_host);
  }
  char* const mine = Get(StagingBuffers::kPart, part);
  if (part > 0) TFHVD_RETURN_IF_ERROR(across_->Broadcast(mine, part, root_host));
  return local_->AllGather(mine, buffer, parts);
}

// The lanes gather their ranks' blocks of all hosts, the ranks of a host put the lanes together.
Status HierarchicalCommunicator::AllGather(const void* in, void* out, const Sizes& bytes) {
  std::vector<char*> addresses;
  char* address = static_cast<char*>(out);
  for (const int64_t n : bytes) {
    addresses.push_back(address);
    address += n;
  }
  const size_t own = static_cast<size_t>(rank());
  Copy(addresses[own], in, bytes[own]);
  const int64_t most = *std::max_element(bytes.begin(), bytes.end());
  const int64_t piece = BlockPiece(1);
  for (int64_t done = 0; done < most; done += piece) {
    std::vector<char*> to;
    for (char* const begin : addresses) to.push_back(begin + done);
    TFHVD_RETURN_IF_ERROR(GatherPiece(to[own], PieceOf(bytes, done, piece), to));
  }
  return Status::Ok();
}

Status HierarchicalCommunicator::GatherPiece(const char* own, const Sizes& bytes,
                                             const std::vector<char*>& addresses) {
  const char* collected = nullptr;
  TFHVD_RETURN_IF_ERROR(CollectLane(own, bytes, &collected));

  Sizes lane_bytes(static_cast<size_t>(local_->size()), 0);
  for (int l = 0; l < layout_.lanes; ++l) {
    const Sizes by_host = ByHost(bytes, l);
    lane_bytes[static_cast<size_t>(l)] =
        std::accumulate(by_host.begin(), by_host.end(), int64_t{0});
  }
  char* const lane = Get(StagingBuffers::kPart, lane_bytes[static_cast<size_t>(local_rank())]);
  if (in_lane()) {
    TFHVD_RETURN_IF_ERROR(across_->AllGather(collected, lane, ByHost(bytes, local_rank())));
  }
  char* from = Get(StagingBuffers::kShare,
                   std::accumulate(lane_bytes.begin(), lane_bytes.end(), int64_t{0}));
  TFHVD_RETURN_IF_ERROR(local_->AllGather(lane, from, lane_bytes));
  for (int l = 0; l < layout_.lanes; ++l) {
    for (int h = 0; h < layout_.hosts(); ++h) {
      for (const int r : layout_.InLane(h, l)) {
        const int64_t n = bytes[static_cast<size_t>(r)];
        if (r != rank()) Copy(addresses[static_cast<size_t>(r)], from, n);
        from += n;
      }
    }
  }
  return Status::Ok();
}

// What this host's ranks have for this rank's lane, one behind the other; its own block alone where
// every rank has a lane of its own.
Status HierarchicalCommunicator::CollectLane(const char* own, const Sizes& bytes,
                                             const char** collected) {
  *collected = own;
  if (!crowded()) return Status::Ok();
  Sizes send(static_cast<size_t>(local_->size()), 0);
  Sizes receive = send;
  const int64_t mine = bytes[static_cast<size_t>(rank())];
  int64_t total = 0;
  if (in_lane()) {
    for (const int r : layout_.InLane(host(), local_rank())) {
      const int64_t n = bytes[static_cast<size_t>(r)];
      total += n;
      if (r != rank()) receive[static_cast<size_t>(layout_.local_of[static_cast<size_t>(r)])] = n;
    }
  } else {
    send[static_cast<size_t>(layout_.LaneOf(rank()))] = mine;
  }
  char* const buffer = Get(StagingBuffers::kPacked, total);
  if (in_lane()) Copy(buffer, own, mine);
  *collected = buffer;
  return local_->AllToAll(own, send, in_lane() ? buffer + mine : buffer, receive);
}

}  // namespace tfhvd
