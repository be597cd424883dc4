// The control plane over MPI: messages are sent from buffers of their own and looked for when
// Receive is called; nothing wakes the engine. See cc/comm/control_plane.h for the contract. No
// other control plane uses the same tag of the same MPI communicator.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/comm/control_plane.h"

namespace tfhvd {

class MpiControlPlane : public ControlPlane {
 public:
  // The table outlives this. `rank` and `size` are those of `comm`.
  MpiControlPlane(const MpiApi* api, MpiHandle comm, int tag, int rank, int size);

  // What has not left is left to MPI, with its buffers, until the process ends.
  ~MpiControlPlane() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status Send(int to, std::string bytes) override;
  Status Receive(std::optional<Message>* message) override;
  bool Flushed() override;
  bool wakes() const override { return false; }
  void SetWake(std::function<void()>) override {}

 private:
  // A message that MPI reads from or writes to; its address stays.
  struct Letter {
    int peer = 0;
    std::string bytes;
    MpiHandle request = 0;
  };

  Status Push();  // lets what was sent move on
  Status Failed(int error, const std::string& doing, int peer) const;

  const MpiApi* const api_;  // Not owned.
  const MpiHandle comm_;
  const int tag_;
  const int rank_;
  const int size_;
  std::list<Letter> sent_;
  std::list<Letter> arriving_;  // at most one: they keep their order
  Status failure_;              // found by Flushed, told by the next Send or Receive
};

}  // namespace tfhvd
