// The control plane over MPI: messages are sent from buffers of their own and looked for when
// Receive is called. See cc/comm/control_plane.h for the contract. No
// other control plane uses the same tag of the same MPI communicator.
#pragma once

#include <chrono>
#include <list>
#include <optional>
#include <string>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/base/backoff.h"
#include "cc/base/waker.h"
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
  // Nothing wakes this rank when a message comes: while one is expected, it looks again and again.
  void Wait(std::chrono::nanoseconds timeout, bool expecting) override;
  void Wake() override { waker_.Wake(); }

 private:
  // The longest sleep between two looks, while a message is expected or not. A rank that expects
  // none itself may be needed by others soon after it was: it looks ever less often.
  static constexpr long kPollSleepNs = 200000;
  static constexpr long kIdleSleepNs = 250000000;

  // A message that MPI reads from or writes to; its address stays.
  struct Transfer {
    int peer = 0;
    std::string bytes;
    MpiHandle request = 0;
  };

  Status Push();  // lets what was sent move on
  Status Failed(int error, const std::string& doing, int peer) const;
  Status ProbeFailed(int error) const;

  const MpiApi* const api_;  // Not owned.
  const MpiHandle comm_;
  const int tag_;
  const int rank_;
  const int size_;
  std::list<Transfer> sent_;
  std::list<Transfer> arriving_;  // at most one: they keep their order
  Waker waker_;
  Backoff backoff_{kPollSleepNs};
  Backoff idle_{kIdleSleepNs, Backoff::kSleepAtOnce};
  Status failure_;  // found by Flushed, told by the next Send or Receive
};

}  // namespace tfhvd
