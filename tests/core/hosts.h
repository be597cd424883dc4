// Ranks that are threads take themselves to be on several hosts: control planes in two levels.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/shm/shm_control_plane.h"
#include "cc/collectives/hierarchical/hierarchical_control_plane.h"
#include "tests/core/testing.h"

namespace tfhvd {

// As MPI's: nobody can vote on it, and nothing that arrives ends a Wait.
class DeafControlPlane : public ControlPlane {
 public:
  explicit DeafControlPlane(std::unique_ptr<ControlPlane> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status Send(int to, std::string bytes) override { return inner_->Send(to, std::move(bytes)); }
  Status Receive(std::optional<Message>* message) override { return inner_->Receive(message); }
  bool Flushed() override { return inner_->Flushed(); }
  void Wait(std::chrono::nanoseconds, bool) override { EXPECT_TRUE(false); }
  void Wake() override {}

 private:
  const std::unique_ptr<ControlPlane> inner_;
};

// Puts something around a control plane.
using Wrap = std::function<std::unique_ptr<ControlPlane>(std::unique_ptr<ControlPlane>)>;

// The control plane of rank `rank`, whose host is hosts[rank]: shared memory within a host,
// `across` to the others; `wrap` goes around both. Collective over `group`.
inline std::unique_ptr<ControlPlane> JoinHosts(InprocGroup* group, int rank,
                                               const std::vector<int>& hosts,
                                               std::unique_ptr<ControlPlane> across,
                                               const Wrap& wrap = nullptr) {
  const HostLayout layout = MakeHostLayout(hosts);
  const auto host = static_cast<size_t>(layout.host_of[static_cast<size_t>(rank)]);
  const std::unique_ptr<World> world = group->OpenWorld(rank);
  std::unique_ptr<Communicator> neighbours;
  EXPECT_OK(world->OpenCommunicator(layout.ranks_of[host], &neighbours));
  std::unique_ptr<ControlPlane> local;
  EXPECT_OK(MakeShmControlPlane(neighbours.get(), &local));
  across = std::make_unique<DeafControlPlane>(std::move(across));
  if (wrap) {
    local = wrap(std::move(local));
    across = wrap(std::move(across));
  }
  return std::make_unique<HierarchicalControlPlane>(layout, rank, std::move(local),
                                                    std::move(across));
}

}  // namespace tfhvd
