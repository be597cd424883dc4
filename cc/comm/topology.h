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
  int generation = 0;              // of the members of an elastic job; else 0
  bool homogeneous = true;         // every host has the same number of ranks
  std::vector<std::string> hosts;  // their names, by rank
  std::vector<int> host_of;        // by rank; hosts count in the order of their lowest ranks
  // By rank: its number among all processes that were started together on its host, those of other
  // jobs too; -1 where its launcher does not say. Empty: of no rank.
  std::vector<int> local_processes;
  // By rank: its process, where it is on this host and this process can see it; else 0. Empty: of
  // no rank.
  std::vector<int> pids;
  // By rank: where it answers who asks what the ranks of its host do, in the words of the program
  // (tfhvd/runtime/host_monitor.py); "" if it has none. Empty: no rank has one.
  std::vector<std::string> watch_addresses;
};

// `hosts[r]` names rank r's host; equal names mean the same host. REQUIRES: 0 <= rank <
// hosts.size().
Topology MakeTopology(int rank, std::vector<std::string> hosts);

// Which of its host's `gpus` (at least one) this rank takes where nobody has chosen. The one of its
// number in local_processes, so that jobs that share a host do not meet; of its local rank where
// those are not known, or would put two ranks of this job on one GPU.
int GpuOf(const Topology& topology, int gpus);

}  // namespace tfhvd
