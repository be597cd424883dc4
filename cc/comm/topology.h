// Topology: which ranks share a host. Pure, from every rank's host key.
#pragma once

#include <string>
#include <vector>

namespace tfhvd {

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  int cross_rank = 0;  // among the ranks with this local_rank, one a host
  int cross_size = 1;
  bool homogeneous = true;         // every host has the same number of ranks
  std::vector<std::string> hosts;  // their names, by rank
  std::vector<int> host_of;        // by rank; hosts count in the order of their lowest ranks
};

// `hosts[r]` names rank r's host; equal names mean the same host. REQUIRES: 0 <= rank <
// hosts.size().
Topology MakeTopology(int rank, std::vector<std::string> hosts);

}  // namespace tfhvd
