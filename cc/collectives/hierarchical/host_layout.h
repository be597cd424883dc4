// HostLayout: which ranks of a communicator share a host, and in which lane each goes to the
// others.
//
// Hosts count in the order of their lowest ranks; a host's ranks count in their own order. There
// are as many lanes as the smallest host has ranks: lane l joins the l-th ranks of all hosts. Where
// a host has more ranks than that, the others send by way of lane (local rank mod lanes).
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

  // The ranks of a host that send by way of one lane, that lane's own rank first.
  std::vector<int> InLane(int host, int lane) const;

  // The ranks that a lane joins, by host.
  std::vector<int> LaneRanks(int lane) const;
};

// `hosts[r]` is rank r's host, by any numbering. REQUIRES: hosts is not empty.
HostLayout MakeHostLayout(const std::vector<int>& hosts);

}  // namespace tfhvd
