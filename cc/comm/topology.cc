#include "cc/comm/topology.h"

#include <map>
#include <set>

namespace tfhvd {

Topology MakeTopology(int rank, std::vector<std::string> hosts) {
  Topology t;
  t.rank = rank;
  t.size = static_cast<int>(hosts.size());
  t.local_size = 0;

  std::map<std::string, int> ranks_on;  // so far, in the loop over the ranks
  std::vector<int> local_ranks;
  std::map<std::string, int> index;
  for (const std::string& host : hosts) {
    local_ranks.push_back(ranks_on[host]++);
    t.host_of.push_back(index.emplace(host, static_cast<int>(index.size())).first->second);
  }

  t.local_rank = local_ranks[rank];
  t.local_size = ranks_on[hosts[rank]];
  t.cross_size = 0;
  for (int r = 0; r < t.size; ++r) {
    if (local_ranks[r] != t.local_rank) continue;
    if (r == rank) t.cross_rank = t.cross_size;
    ++t.cross_size;
  }
  for (const auto& [host, count] : ranks_on) {
    if (count != t.local_size) t.homogeneous = false;
  }
  t.hosts = std::move(hosts);
  return t;
}

int GpuOf(const Topology& t, int gpus) {
  const int by_local_rank = t.local_rank % gpus;
  if (t.local_processes.empty()) return by_local_rank;
  std::set<int> taken;
  for (size_t r = 0; r < t.local_processes.size(); ++r) {
    if (t.host_of[r] != t.host_of[static_cast<size_t>(t.rank)]) continue;
    if (t.local_processes[r] < 0 || !taken.insert(t.local_processes[r] % gpus).second)
      return by_local_rank;
  }
  return t.local_processes[static_cast<size_t>(t.rank)] % gpus;
}

}  // namespace tfhvd
