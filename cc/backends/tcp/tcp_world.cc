#include "cc/backends/tcp/tcp_world.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/backends/tcp/tcp_control_plane.h"
#include "cc/backends/tcp/tcp_transfers.h"
#include "cc/base/fingerprint.h"
#include "cc/base/log.h"
#include "cc/collectives/transfer/transfer_communicator.h"
#include "cc/comm/stall_guard.h"

namespace tfhvd {
namespace {

// Messages with this tag agree on the tag of a new communicator.
constexpr uint32_t kOpeningTag = 0;

// How long a leaving process waits until its last messages are sent.
constexpr std::chrono::seconds kToLeave(5);

std::vector<int> AllOf(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The state that the Worlds of one process share.
struct Shared {
  std::unique_ptr<TcpMesh> mesh;
  std::map<std::vector<int>, int> opened;  // how many Worlds of these ranks were opened
};

class TcpWorld : public World {
 public:
  // `ranks` of the mesh; `rank` is this process's index among them. `context` distinguishes the
  // Worlds of one mesh.
  TcpWorld(std::shared_ptr<Shared> shared, const Config& config, std::vector<int> ranks, int rank,
           uint64_t context)
      : shared_(std::move(shared)),
        config_(config),
        ranks_(std::move(ranks)),
        rank_(rank),
        context_(context),
        stall_guard_(Log(config.log_level, rank), rank, StallLimitsOf(config)) {}

  const char* name() const override { return "tcp"; }
  std::string description() const override { return "TCP"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  Status OpenPart(const std::vector<int>& ranks, std::unique_ptr<World>* out) override {
    int index = 0;
    TFHVD_RETURN_IF_ERROR(FindIndex(*this, ranks, &index));
    std::vector<int> of_mesh;
    for (const int r : ranks) of_mesh.push_back(ranks_[static_cast<size_t>(r)]);
    // Worlds of other ranks, or later ones of the same ranks, have other numbers; 0 is the World of
    // all.
    std::vector<int> unique = of_mesh;
    unique.push_back(++shared_->opened[of_mesh]);
    const uint64_t context = Fingerprint(unique.data(), unique.size() * sizeof(int)) | 1;
    *out = std::make_unique<TcpWorld>(shared_, config_, std::move(of_mesh), index, context);
    return Status::Ok();
  }

  Status OpenControlPlane(std::unique_ptr<ControlPlane>* out) override {
    // The same number on all ranks, because all open it.
    *out = std::make_unique<TcpControlPlane>(shared_->mesh.get(), context_, next_plane_++, ranks_,
                                             rank_);
    return Status::Ok();
  }

  Status OpenCommunicator(const std::vector<int>& members,
                          std::unique_ptr<Communicator>* out) override {
    TcpPort port;
    TFHVD_RETURN_IF_ERROR(FindMember(*this, members, &port.rank));
    port.mesh = shared_->mesh.get();
    port.context = context_;
    port.tag = kOpeningTag;
    for (const int r : members) port.members.push_back(ranks_[static_cast<size_t>(r)]);
    port.closes_tag = false;

    // The members' next free tags differ if they opened other communicators before: the greatest is
    // free for all.
    int64_t tag = next_tag_;
    TransferCommunicator opening(std::make_unique<TcpTransfers>(port));
    opening.SetWaitMonitor(monitor());
    TFHVD_RETURN_IF_ERROR(
        opening.AllReduce(&tag, &tag, 1, DType::kInt64, Reduction{ReduceOp::kMax, 1.0, 1.0}));
    next_tag_ = tag + kChannels;
    port.tag = static_cast<uint32_t>(tag);
    port.closes_tag = true;
    *out = std::make_unique<TransferCommunicator>(std::make_unique<TcpTransfers>(std::move(port)));
    (*out)->SetWaitMonitor(monitor());
    return Status::Ok();
  }

  void SetWaitMonitor(WaitMonitor* monitor) override { monitor_ = monitor; }

  void StopListening() override { shared_->mesh->StopListening(); }

  Status Close() override {
    if (context_ == 0) shared_->mesh->Leave(kToLeave);
    return Status::Ok();
  }

 private:
  WaitMonitor* monitor() { return monitor_ != nullptr ? monitor_ : &stall_guard_; }

  const std::shared_ptr<Shared> shared_;
  const Config config_;
  const std::vector<int> ranks_;
  const int rank_;
  const uint64_t context_;
  uint32_t next_plane_ = 0;
  int64_t next_tag_ = kOpeningTag + kChannels;
  WaitMonitor* monitor_ = nullptr;  // Not owned.
  StallGuard stall_guard_;          // used if there is no other monitor
};

}  // namespace

Status ConnectTcpWorld(const Config& config, const TcpEndpoints& endpoints,
                       std::unique_ptr<World>* world) {
  const int size = static_cast<int>(endpoints.addresses.size());
  auto shared = std::make_shared<Shared>();
  TFHVD_RETURN_IF_ERROR(TcpMesh::Open(endpoints, &shared->mesh, config.failpoints));
  *world = std::make_unique<TcpWorld>(std::move(shared), config, AllOf(size), endpoints.rank, 0);
  return Status::Ok();
}

}  // namespace tfhvd
