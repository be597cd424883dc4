// HostPeers: notices that a rank of this host has died, whatever carries the collectives.
// One thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cc/base/peer_processes.h"
#include "cc/base/status.h"
#include "cc/comm/topology.h"

namespace tfhvd {

class HostPeers {
 public:
  // Takes hold of the processes of `topology` that run now; none where it has no pids.
  explicit HostPeers(const Topology& topology);

  // kAborted: one of them has ended. Never blocks. `counts` says of a rank whether it counts; null:
  // all do.
  Status EveryoneRuns(const std::function<bool(int)>& counts = nullptr) const;

 private:
  const std::string host_;        // its name, for messages
  const std::vector<int> ranks_;  // of this host, without this one
  const PeerProcesses processes_;
};

}  // namespace tfhvd
