// HostPeers: notices the death of a rank on this host, independently of the transport. One thread
// at a time.
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
  // Observes the processes of `topology` on this host that run now; none if it has no pids.
  explicit HostPeers(const Topology& topology);

  // Returns kAborted if one of them has ended. Never blocks. `counts`: whether a rank counts; null:
  // all do.
  Status EveryoneRuns(const std::function<bool(int)>& counts = nullptr) const;

 private:
  const std::string host_;        // the host's name, for messages
  const std::vector<int> ranks_;  // of this host, without this one
  const PeerProcesses processes_;
};

}  // namespace tfhvd
