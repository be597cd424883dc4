// PeerProcesses: notices that a process of this host has ended, for any reason; also if its parent
// has not reaped it yet, or another process has reused its number. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cc/base/fd.h"

namespace tfhvd {

class PeerProcesses {
 public:
  // Observes processes that run now; the list may be empty.
  explicit PeerProcesses(std::vector<int> pids);
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  bool empty() const { return pids_.empty(); }
  int pid(int index) const { return pids_[static_cast<size_t>(index)]; }

  // Returns the index of the first process that has ended; -1: none. Never blocks. `counts`:
  // whether the process of an index counts; null: all do.
  int FirstEnded(const std::function<bool(int)>& counts = nullptr) const;

 private:
  const std::vector<int> pids_;
  std::vector<Fd> handles_;  // by process; none if the kernel has no handle for it
};

}  // namespace tfhvd
