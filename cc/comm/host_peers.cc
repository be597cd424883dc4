#include "cc/comm/host_peers.h"

namespace tfhvd {
namespace {

std::vector<int> VisibleRanks(const Topology& topology) {
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(topology.pids.size()); ++r) {
    if (r != topology.rank && topology.pids[static_cast<size_t>(r)] > 0) ranks.push_back(r);
  }
  return ranks;
}

std::vector<int> PidsOf(const std::vector<int>& ranks, const Topology& topology) {
  std::vector<int> pids;
  for (const int rank : ranks) pids.push_back(topology.pids[static_cast<size_t>(rank)]);
  return pids;
}

std::string HostName(const Topology& topology) {
  const auto rank = static_cast<size_t>(topology.rank);
  return rank < topology.hosts.size() ? "host " + topology.hosts[rank] : "this host";
}

}  // namespace

HostPeers::HostPeers(const Topology& topology)
    : host_(HostName(topology)),
      ranks_(VisibleRanks(topology)),
      processes_(PidsOf(ranks_, topology)) {}

Status HostPeers::EveryoneRuns(const std::function<bool(int)>& counts) const {
  const int ended = processes_.FirstEnded([this, &counts](int index) {
    return counts == nullptr || counts(ranks_[static_cast<size_t>(index)]);
  });
  if (ended < 0) return Status::Ok();
  return Status::Aborted("rank " + std::to_string(ranks_[static_cast<size_t>(ended)]) +
                         " (process " + std::to_string(processes_.pid(ended)) + " on " + host_ +
                         ") has died. Its own output, or dmesg, may say why.");
}

}  // namespace tfhvd
