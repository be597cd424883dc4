#include "cc/collectives/hierarchical/host_layout.h"

#include <algorithm>
#include <map>

namespace tfhvd {

std::vector<int> HostLayout::InLane(int host, int lane) const {
  const std::vector<int>& ranks = ranks_of[static_cast<size_t>(host)];
  std::vector<int> found;
  for (size_t l = static_cast<size_t>(lane); l < ranks.size(); l += static_cast<size_t>(lanes)) {
    found.push_back(ranks[l]);
  }
  return found;
}

std::vector<int> HostLayout::LaneRanks(int lane) const {
  std::vector<int> ranks;
  for (const std::vector<int>& host : ranks_of) ranks.push_back(host[static_cast<size_t>(lane)]);
  return ranks;
}

HostLayout MakeHostLayout(const std::vector<int>& hosts) {
  HostLayout layout;
  std::map<int, size_t> index;  // index of each host in ranks_of
  for (size_t r = 0; r < hosts.size(); ++r) {
    const size_t host = index.emplace(hosts[r], index.size()).first->second;
    if (host == layout.ranks_of.size()) layout.ranks_of.emplace_back();
    std::vector<int>& ranks = layout.ranks_of[host];
    layout.host_of.push_back(static_cast<int>(host));
    layout.local_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(r));
  }
  size_t least = hosts.size();
  for (const std::vector<int>& ranks : layout.ranks_of) least = std::min(least, ranks.size());
  layout.lanes = static_cast<int>(least);
  return layout;
}

}  // namespace tfhvd
