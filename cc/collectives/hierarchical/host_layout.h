// HostLayout: which ranks of a communicator share a host, and which lane each uses to reach the
// other hosts.
//
// Hosts are numbered in the order of their lowest ranks; a host's ranks keep their order. There are
// as many lanes as the smallest host has ranks: lane l connects the l-th ranks of all hosts. On a
// host with more ranks, the others use lane (local rank mod lanes).
//
// Plain data, the same on every rank.
#pragma once

#include <cstddef>
#include <vector>

namespace tfhvd {

struct HostLayout {
  int lanes = 1;
  std::vector<std::vector<int>> ranks_of;  // by host
  std::vector<int> host_of;                // by rank: its host
  std::vector<int> local_of;               // by rank: its index among its host's ranks

  int size() const { return static_cast<int>(host_of.size()); }
  int hosts() const { return static_cast<int>(ranks_of.size()); }
  int LaneOf(int rank) const { return local_of[static_cast<size_t>(rank)] % lanes; }

  // Returns the ranks of a host that use one lane, that lane's own rank first.
  std::vector<int> InLane(int host, int lane) const;

  // Returns the ranks that a lane connects, by host.
  std::vector<int> LaneRanks(int lane) const;
};

// `hosts[r]` is rank r's host, in any numbering. REQUIRES: hosts is not empty.
HostLayout MakeHostLayout(const std::vector<int>& hosts);

}  // namespace tfhvd
