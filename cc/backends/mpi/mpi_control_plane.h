// MpiControlPlane: the control plane over MPI. It sends each message from a separate buffer, and
// looks for messages when Receive is called. See cc/comm/control_plane.h for the contract. No other
// control plane uses the same tag of the same MPI communicator.
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
  // The table outlives this object. `rank` and `size` are those of `comm`.
  MpiControlPlane(const MpiApi* api, MpiHandle comm, int tag, int rank, int size);

  // Leaves unsent messages to MPI, with their buffers, until the process ends.
  ~MpiControlPlane() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status Send(int to, std::string bytes) override;
  Status Receive(std::optional<Message>* message) override;
  bool Flushed() override;
  // A message does not wake this rank: while one is expected, it polls.
  void Wait(std::chrono::nanoseconds timeout, bool expecting) override;
  void Wake() override { waker_.Wake(); }

 private:
  // The longest sleep between two polls, while a message is expected or not. A rank that expects
  // none may soon be needed by others again: it polls less and less often.
  static constexpr long kPollSleepNs = 200000;
  static constexpr long kIdleSleepNs = 250000000;

  // A message that MPI reads or writes; its address does not change.
  struct Transfer {
    int peer = 0;
    std::string bytes;
    MpiHandle request = 0;
  };

  Status Push();  // makes progress with sent messages
  Status Failed(int error, const std::string& doing, int peer) const;
  Status ProbeFailed(int error) const;

  const MpiApi* const api_;  // Not owned.
  const MpiHandle comm_;
  const int tag_;
  const int rank_;
  const int size_;
  std::list<Transfer> sent_;
  std::list<Transfer> arriving_;  // at most one, so that messages keep their order
  Waker waker_;
  Backoff backoff_{kPollSleepNs};
  Backoff idle_{kIdleSleepNs, Backoff::kSleepAtOnce};
  Status failure_;  // found by Flushed, returned by the next Send or Receive
};

}  // namespace tfhvd
