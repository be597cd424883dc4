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
  int cross_rank = 0;  // among the ranks with this local_rank, one on each host
  int cross_size = 1;
  int generation = 0;              // of the members of an elastic job; else 0
  bool homogeneous = true;         // every host has the same number of ranks
  std::vector<std::string> hosts;  // names, by rank
  std::vector<int> host_of;        // by rank; hosts are numbered in the order of their lowest ranks
  // By rank: its number among all processes that were started together on its host, including those
  // of other jobs; -1 if its launcher does not say. Empty if no rank has one.
  std::vector<int> local_processes;
  // By rank: its pid, if it is on this host and visible to this process; otherwise 0. Empty if no
  // rank has one.
  std::vector<int> pids;
  // By rank: the address where it answers questions about the ranks of its host, in the protocol of
  // the Python program (tfhvd/runtime/host_monitor.py); "" if it has none. Empty if no rank has
  // one.
  std::vector<std::string> watch_addresses;
};

// `hosts[r]` names rank r's host; equal names mean the same host. REQUIRES: 0 <= rank <
// hosts.size().
Topology MakeTopology(int rank, std::vector<std::string> hosts);

// Returns the index of the GPU, out of the `gpus` of the host (at least one), that this rank takes
// by default: its number in local_processes, so that jobs on one host do not share GPUs. Uses the
// local rank if these numbers are unknown, or would give two ranks of this job the same GPU.
int GpuOf(const Topology& topology, int gpus);

}  // namespace tfhvd
