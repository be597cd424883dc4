// TcpControlPlane: the control plane over TCP: a message wakes a sleeping rank. See
// cc/comm/control_plane.h for the contract.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cc/backends/tcp/tcp_mesh.h"
#include "cc/base/backoff.h"
#include "cc/comm/control_plane.h"

namespace tfhvd {

class TcpControlPlane : public ControlPlane {
 public:
  // The mesh must outlive this object. `members`: the plane's ranks in the mesh, in their order.
  TcpControlPlane(TcpMesh* mesh, uint64_t context, uint32_t plane, std::vector<int> members,
                  int rank);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  Status Send(int to, std::string bytes) override;
  Status Receive(std::optional<Message>* message) override;
  bool Flushed() override;
  void Wait(std::chrono::nanoseconds timeout, bool expecting) override;
  void Wake() override { mesh_->Wake(); }

 private:
  TcpMesh* const mesh_;  // Not owned.
  const uint64_t context_;
  const uint32_t plane_;
  const std::vector<int> members_;
  const int rank_;
  Backoff backoff_;  // how long to stay awake while a message is expected
};

}  // namespace tfhvd
