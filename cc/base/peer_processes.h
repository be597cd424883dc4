// PeerProcesses: notices that a process of this host has ended, by whatever cause; also where its
// parent has not reaped it yet, or another process has its number since. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cc/base/fd.h"

namespace tfhvd {

class PeerProcesses {
 public:
  // Takes hold of processes that run now; an empty list has none.
  explicit PeerProcesses(std::vector<int> pids);
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  bool empty() const { return pids_.empty(); }
  int pid(int index) const { return pids_[static_cast<size_t>(index)]; }

  // The first of them that has ended, as an index; -1: none. Never blocks. `counts` says of an
  // index whether that process counts; null: all do.
  int FirstEnded(const std::function<bool(int)>& counts = nullptr) const;

 private:
  const std::vector<int> pids_;
  std::vector<Fd> handles_;  // by process; none: the kernel has no handle for it
};

}  // namespace tfhvd
