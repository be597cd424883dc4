// Inproc: the ranks of a job as threads of one process, and the job of one process alone.
//
// An InprocGroup is shared by the threads that play ranks 0 .. size - 1; each opens its own World
// from it (each World by one thread at a time, different Worlds at once). Worlds, control planes
// and communicators keep what they share alive, so that they may outlive the group and each other.
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

  // Any thread, once a rank. REQUIRES: 0 <= rank < size().
  std::unique_ptr<World> OpenWorld(int rank);

  // As if the job's network broke: everything opened, now or later, fails with `why` on every rank.
  // Any thread.
  void Abort(const Status& why);

 private:
  const std::shared_ptr<InprocState> state_;
};

// The job of this process alone: size 1, no peers.
std::unique_ptr<World> MakeSoloWorld();

}  // namespace tfhvd
