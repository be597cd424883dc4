#include "cc/process/choose.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/backends/hierarchical/hierarchical_communicator.h"
#include "cc/backends/hierarchical/hierarchical_control_plane.h"
#include "cc/backends/hierarchical/host_layout.h"
#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/shm_control_plane.h"

namespace tfhvd {
namespace {

struct Means {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<ControlPlane> control;  // null where none is wanted: in a process set
};

// Those who are to talk: all ranks of the job, or a process set's.
struct Circle {
  std::vector<int> ranks;  // of the job, ascending
  int self = 0;            // this process's place among them
  HostLayout layout;       // of the places
};

Circle MakeCircle(const std::vector<int>& ranks, int rank, const std::vector<int>& host_of) {
  Circle circle;
  circle.ranks = ranks;
  std::vector<int> hosts;
  for (const int r : ranks) {
    if (r == rank) circle.self = static_cast<int>(hosts.size());
    hosts.push_back(host_of[static_cast<size_t>(r)]);
  }
  circle.layout = MakeHostLayout(hosts);
  return circle;
}

// The ranks of the job at these places.
std::vector<int> At(const Circle& circle, const std::vector<int>& places) {
  std::vector<int> ranks;
  for (const int place : places) ranks.push_back(circle.ranks[static_cast<size_t>(place)]);
  return ranks;
}

// Those on this process's host.
std::vector<int> Neighbours(const Circle& circle) {
  const auto host = static_cast<size_t>(circle.layout.host_of[static_cast<size_t>(circle.self)]);
  return At(circle, circle.layout.ranks_of[host]);
}

// Finds means for a circle.
class Finder {
 public:
  Finder(const Log& log, World* world) : log_(log), world_(world) {}

  // Collective over the circle, which `everyone` joins. `means` holds the starter's control plane
  // before, and everything after; kUnavailable on every rank where nothing is faster than what the
  // starter gave.
  Status Find(const Circle& circle, Communicator* everyone, Means* means) const {
    return circle.layout.hosts() == 1
               ? ShareMemory(circle, everyone, means->control != nullptr, means)
               : JoinHosts(circle, everyone, means);
  }

 private:
  // Collective over `host`, whose ranks are all on one host. kUnavailable where they cannot share
  // memory: on all of them.
  Status ShareMemory(const Circle& circle, Communicator* host, bool control, Means* means) const {
    ShmOptions options;
    options.job_ranks = Neighbours(circle);
    options.log = log_;
    TFHVD_RETURN_IF_ERROR(MakeShmCommunicator(host, options, &means->communicator));
    return control ? MakeShmControlPlane(host, &means->control) : Status::Ok();
  }

  // Collective over all of the circle: `mine` where every rank's is ok, else kUnavailable on all.
  static Status Everyone(Communicator* everyone, const Status& mine) {
    int64_t bad = mine.ok() ? 0 : 1;
    Reduction max;
    max.op = ReduceOp::kMax;
    TFHVD_RETURN_IF_ERROR(everyone->AllReduce(&bad, &bad, 1, DType::kInt64, max));
    if (!mine.ok() || bad == 0) return mine;
    return Status::Unavailable("the ranks of another host cannot share memory");
  }

  Status JoinHosts(const Circle& circle, Communicator* everyone, Means* means) const {
    const HostLayout& layout = circle.layout;
    if (layout.hosts() == layout.size()) return Status::Unavailable("every host has one rank");
    std::unique_ptr<Communicator> host;
    TFHVD_RETURN_IF_ERROR(world_->OpenCommunicator(Neighbours(circle), &host));
    Means local;
    const bool control = means->control != nullptr;
    const Status shared = ShareMemory(circle, host.get(), control, &local);
    if (!shared.ok() && shared.code() != StatusCode::kUnavailable) return shared;
    TFHVD_RETURN_IF_ERROR(Everyone(everyone, shared));
    std::unique_ptr<Communicator> across;
    const int lane = layout.local_of[static_cast<size_t>(circle.self)];
    if (lane < layout.lanes) {
      TFHVD_RETURN_IF_ERROR(world_->OpenCommunicator(At(circle, layout.LaneRanks(lane)), &across));
    }
    means->communicator = std::make_unique<HierarchicalCommunicator>(
        layout, circle.self, std::move(local.communicator), std::move(across));
    if (!control) return Status::Ok();
    means->control = std::make_unique<HierarchicalControlPlane>(
        layout, circle.self, std::move(local.control), std::move(means->control));
    if (circle.self == 0) {
      log_.Info("collectives go through shared memory within each of " +
                std::to_string(layout.hosts()) + " hosts and through " + world_->description() +
                " across; lanes: " + std::to_string(layout.lanes));
    }
    return Status::Ok();
  }

  const Log& log_;
  World* const world_;  // Not owned.
};

// Whether the wanted means can be had at all in a job of these hosts.
Status CheckWanted(const Config& config, const Topology& topology) {
  const bool one_host = topology.local_size == topology.size;
  if (config.cpu_operations == CpuOperations::kShm && !one_host) {
    return Status::Unavailable("the ranks are on several hosts");
  }
  if (config.cpu_operations == CpuOperations::kHierarchical && one_host) {
    return Status::Unavailable("all ranks are on one host");
  }
  return Status::Ok();
}

// What ChooseMeans does for whatever is not the ranks' voting.
Status ChooseFaster(const Config& config, const Topology& topology, const Log& log, World* world,
                    std::unique_ptr<Communicator>* communicator,
                    std::unique_ptr<ControlPlane>* control) {
  if (config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
  Means means;
  means.control = std::move(*control);
  std::vector<int> everyone(static_cast<size_t>(topology.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  Status status = CheckWanted(config, topology);
  if (status.ok()) {
    status = Finder(log, world)
                 .Find(MakeCircle(everyone, topology.rank, topology.host_of), communicator->get(),
                       &means);
  }
  *control = std::move(means.control);
  if (status.ok()) *communicator = std::move(means.communicator);
  if (status.code() != StatusCode::kUnavailable) return status;
  if (config.cpu_operations != CpuOperations::kAuto) {
    const bool shm = config.cpu_operations == CpuOperations::kShm;
    return Status::Unavailable(
        std::string("TFHVD_CPU_OPERATIONS=") + (shm ? "shm" : "hierarchical") +
        " cannot be had: " + status.message() + ". Unset it, or set it to mpi.");
  }
  if (topology.rank == 0) log.Info("collectives go through MPI: " + status.message());
  return Status::Ok();
}

// Ranks that share no memory vote by messages, each as if it had a host of its own.
Status LetVote(const Topology& topology, std::unique_ptr<ControlPlane>* control) {
  std::vector<int> hosts(topology.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  std::unique_ptr<ControlPlane> alone;
  TFHVD_RETURN_IF_ERROR(MakeSoloWorld()->OpenControlPlane(&alone));
  *control = std::make_unique<HierarchicalControlPlane>(MakeHostLayout(hosts), topology.rank,
                                                        std::move(alone), std::move(*control));
  return Status::Ok();
}

}  // namespace

Status ChooseMeans(const Config& config, const Topology& topology, const Log& log, World* world,
                   std::unique_ptr<Communicator>* communicator,
                   std::unique_ptr<ControlPlane>* control) {
  if (topology.size == 1) return Status::Ok();
  TFHVD_RETURN_IF_ERROR(ChooseFaster(config, topology, log, world, communicator, control));
  return (*control)->votes() != nullptr ? Status::Ok() : LetVote(topology, control);
}

CommunicatorFactory MakeCommunicatorFactory(const Config& config, const Topology& topology,
                                            const Log& log, World* world) {
  return [config, topology, log, world](const std::vector<int>& members,
                                        std::unique_ptr<Communicator>* out) {
    TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(members, out));
    if (members.size() == 1 || config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
    Means means;
    const Circle circle = MakeCircle(members, topology.rank, topology.host_of);
    const Status found = Finder(log, world).Find(circle, out->get(), &means);
    if (found.ok()) *out = std::move(means.communicator);
    return found.code() == StatusCode::kUnavailable ? Status::Ok() : found;
  };
}

}  // namespace tfhvd
