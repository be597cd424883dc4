#include "cc/collectives/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tfhvd {

HierarchicalCommunicator::HierarchicalCommunicator(HostLayout layout, int rank,
                                                   std::unique_ptr<Communicator> local,
                                                   std::unique_ptr<Communicator> across,
                                                   HierarchicalOptions options)
    : levels_(std::move(layout), rank, std::move(local), std::move(across), options),
      reduce_(&levels_),
      exchange_(&levels_) {}

void HierarchicalCommunicator::Abort(const Status& why) {
  levels_.local()->Abort(why);
  if (levels_.across() != nullptr) levels_.across()->Abort(why);
}

void HierarchicalCommunicator::SetWaitMonitor(WaitMonitor* monitor) {
  Communicator::SetWaitMonitor(monitor);
  levels_.local()->SetWaitMonitor(monitor);
  if (levels_.across() != nullptr) levels_.across()->SetWaitMonitor(monitor);
}

Status HierarchicalCommunicator::Poll() {
  TFHVD_RETURN_IF_ERROR(levels_.local()->Poll());
  return levels_.across() != nullptr ? levels_.across()->Poll() : Status::Ok();
}

Status HierarchicalCommunicator::Barrier() {
  TFHVD_RETURN_IF_ERROR(levels_.local()->Barrier());
  if (levels_.local_rank() == 0) TFHVD_RETURN_IF_ERROR(levels_.across()->Barrier());
  return levels_.local()->Barrier();
}

Status HierarchicalCommunicator::Broadcast(void* buffer, int64_t bytes, int root) {
  levels_.BeginCall();
  const int lanes = bytes <= levels_.options().small_bytes ? 1 : levels_.layout().lanes;
  const int64_t piece = levels_.options().piece_bytes * lanes;
  for (int64_t done = 0; done < bytes; done += piece) {
    TFHVD_RETURN_IF_ERROR(BroadcastPiece(static_cast<char*>(buffer) + done,
                                         std::min(piece, bytes - done), root, lanes));
  }
  return Status::Ok();
}

// On the root's host every rank gets everything; each lane carries a part of it to the other hosts.
Status HierarchicalCommunicator::BroadcastPiece(char* buffer, int64_t bytes, int root, int lanes) {
  const Sizes parts = levels_.Divide(bytes, lanes);
  const int64_t part = parts[static_cast<size_t>(levels_.local_rank())];
  const int root_host = levels_.layout().host_of[static_cast<size_t>(root)];
  if (levels_.host() == root_host) {
    TFHVD_RETURN_IF_ERROR(levels_.local()->Broadcast(
        buffer, bytes, levels_.layout().local_of[static_cast<size_t>(root)]));
    if (part == 0) return Status::Ok();
    char* const mine =
        buffer + std::accumulate(parts.begin(), parts.begin() + levels_.local_rank(), int64_t{0});
    return levels_.across()->Broadcast(mine, part, root_host);
  }
  char* const mine = levels_.Get(StagingBuffers::kPart, part);
  if (part > 0) TFHVD_RETURN_IF_ERROR(levels_.across()->Broadcast(mine, part, root_host));
  return levels_.local()->AllGather(mine, buffer, parts);
}

// The lanes gather their ranks' blocks of all hosts; then the ranks of a host combine the lanes.
Status HierarchicalCommunicator::AllGather(const void* in, void* out, const Sizes& bytes) {
  levels_.BeginCall();
  std::vector<char*> addresses;
  char* address = static_cast<char*>(out);
  for (const int64_t n : bytes) {
    addresses.push_back(address);
    address += n;
  }
  const size_t own = static_cast<size_t>(levels_.rank());
  TwoLevels::Copy(addresses[own], in, bytes[own]);
  const int64_t most = *std::max_element(bytes.begin(), bytes.end());
  const int64_t piece = levels_.BlockPiece(1);
  for (int64_t done = 0; done < most; done += piece) {
    std::vector<char*> to;
    for (char* const begin : addresses) to.push_back(begin + done);
    TFHVD_RETURN_IF_ERROR(GatherPiece(to[own], TwoLevels::PieceOf(bytes, done, piece), to));
  }
  return Status::Ok();
}

Status HierarchicalCommunicator::GatherPiece(const char* own, const Sizes& bytes,
                                             const std::vector<char*>& addresses) {
  const char* collected = nullptr;
  TFHVD_RETURN_IF_ERROR(CollectLane(own, bytes, &collected));

  Sizes lane_bytes(static_cast<size_t>(levels_.local()->size()), 0);
  for (int l = 0; l < levels_.layout().lanes; ++l) {
    const Sizes by_host = levels_.ByHost(bytes, l);
    lane_bytes[static_cast<size_t>(l)] =
        std::accumulate(by_host.begin(), by_host.end(), int64_t{0});
  }
  char* const lane =
      levels_.Get(StagingBuffers::kPart, lane_bytes[static_cast<size_t>(levels_.local_rank())]);
  if (levels_.in_lane()) {
    TFHVD_RETURN_IF_ERROR(
        levels_.across()->AllGather(collected, lane, levels_.ByHost(bytes, levels_.local_rank())));
  }
  char* from = levels_.Get(StagingBuffers::kShare,
                           std::accumulate(lane_bytes.begin(), lane_bytes.end(), int64_t{0}));
  TFHVD_RETURN_IF_ERROR(levels_.local()->AllGather(lane, from, lane_bytes));
  for (int l = 0; l < levels_.layout().lanes; ++l) {
    for (int h = 0; h < levels_.layout().hosts(); ++h) {
      for (const int r : levels_.layout().InLane(h, l)) {
        const int64_t n = bytes[static_cast<size_t>(r)];
        if (r != levels_.rank()) TwoLevels::Copy(addresses[static_cast<size_t>(r)], from, n);
        from += n;
      }
    }
  }
  return Status::Ok();
}

// Collects the blocks of this host's ranks for this rank's lane, one after the other; only its own
// block if every rank has a separate lane.
Status HierarchicalCommunicator::CollectLane(const char* own, const Sizes& bytes,
                                             const char** collected) {
  *collected = own;
  if (!levels_.crowded()) return Status::Ok();
  Sizes send(static_cast<size_t>(levels_.local()->size()), 0);
  Sizes receive = send;
  const int64_t mine = bytes[static_cast<size_t>(levels_.rank())];
  int64_t total = 0;
  if (levels_.in_lane()) {
    for (const int r : levels_.layout().InLane(levels_.host(), levels_.local_rank())) {
      const int64_t n = bytes[static_cast<size_t>(r)];
      total += n;
      if (r != levels_.rank())
        receive[static_cast<size_t>(levels_.layout().local_of[static_cast<size_t>(r)])] = n;
    }
  } else {
    send[static_cast<size_t>(levels_.layout().LaneOf(levels_.rank()))] = mine;
  }
  char* const buffer = levels_.Get(StagingBuffers::kPacked, total);
  if (levels_.in_lane()) TwoLevels::Copy(buffer, own, mine);
  *collected = buffer;
  return levels_.local()->AllToAll(own, send, levels_.in_lane() ? buffer + mine : buffer, receive);
}

}  // namespace tfhvd
