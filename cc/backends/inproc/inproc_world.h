// Inproc: the ranks of a job as threads of one process, and the job of a single process.
//
// The threads of ranks 0 .. size - 1 share an InprocGroup, and each opens a World from it (each
// World is used by one thread at a time, different Worlds at once). Worlds, control planes and
// communicators keep their shared state alive, so that they may outlive the group and each other.
#pragma once

#include <memory>

#include "cc/base/status.h"
#include "cc/comm/world.h"

namespace tfhvd {

class InprocState;

class InprocGroup {
 public:
  explicit InprocGroup(int size);
  ~InprocGroup();
  InprocGroup(const InprocGroup&) = delete;
  InprocGroup& operator=(const InprocGroup&) = delete;

  int size() const;

  // Opens the rank's world; call it once for each rank. Any thread. REQUIRES: 0 <= rank < size().
  std::unique_ptr<World> OpenWorld(int rank);

  // Simulates a broken network: all objects, present and later, fail with `why` on every rank. Any
  // thread.
  void Abort(const Status& why);

 private:
  const std::shared_ptr<InprocState> state_;
};

// Makes the world of a single process: size 1, no peers.
std::unique_ptr<World> MakeSoloWorld();

}  // namespace tfhvd
