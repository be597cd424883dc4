#include "cc/rendezvous/transport_selector.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/shm_control_plane.h"
#include "cc/collectives/hierarchical/hierarchical_communicator.h"
#include "cc/collectives/hierarchical/hierarchical_control_plane.h"
#include "cc/collectives/hierarchical/host_layout.h"

namespace tfhvd {
namespace {

struct Transport {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<ControlPlane> control;  // null if none is wanted: in a process set
};

// The ranks that have to communicate: all ranks of the job, or those of a process set.
struct Group {
  std::vector<int> ranks;  // of the job, ascending
  int self = 0;            // this process's index in `ranks`
  HostLayout layout;       // by index in `ranks`
};

Group MakeGroup(const std::vector<int>& ranks, int rank, const std::vector<int>& host_of) {
  Group group;
  group.ranks = ranks;
  std::vector<int> hosts;
  for (const int r : ranks) {
    if (r == rank) group.self = static_cast<int>(hosts.size());
    hosts.push_back(host_of[static_cast<size_t>(r)]);
  }
  group.layout = MakeHostLayout(hosts);
  return group;
}

// Returns the job's ranks at these indices of the group.
std::vector<int> At(const Group& group, const std::vector<int>& indices) {
  std::vector<int> ranks;
  for (const int index : indices) ranks.push_back(group.ranks[static_cast<size_t>(index)]);
  return ranks;
}

// Returns the ranks of the group on this process's host.
std::vector<int> Neighbours(const Group& group) {
  const auto host = static_cast<size_t>(group.layout.host_of[static_cast<size_t>(group.self)]);
  return At(group, group.layout.ranks_of[host]);
}

// Selects the transport of a group.
class TransportSelector {
 public:
  TransportSelector(const Config& config, const Log& log, World* world) : log_(log), world_(world) {
    levels_.wide_floats = config.float32_across_hosts;
    levels_.failpoints = config.failpoints;
  }

  // Collective over the group, which `everyone` connects. `transport` holds the launcher's control
  // plane before the call, and the selected transport afterwards. Returns kUnavailable on every
  // rank if nothing is faster than the launcher's transport.
  Status Find(const Group& group, Communicator* everyone, Transport* transport) const {
    return group.layout.hosts() == 1
               ? ShareMemory(group, everyone, transport->control != nullptr, transport)
               : JoinHosts(group, everyone, transport);
  }

 private:
  // Collective over `host`, whose ranks are all on one host. Returns kUnavailable on all of them if
  // they cannot share memory.
  Status ShareMemory(const Group& group, Communicator* host, bool control,
                     Transport* transport) const {
    ShmOptions options;
    options.job_ranks = Neighbours(group);
    options.log = log_;
    options.failpoints = levels_.failpoints;
    TFHVD_RETURN_IF_ERROR(MakeShmCommunicator(host, options, &transport->communicator));
    return control ? MakeShmControlPlane(host, &transport->control) : Status::Ok();
  }

  // Collective over the group. Counts the hosts whose ranks share memory.
  static Status CountSharingHosts(const HostLayout& layout, int rank, Communicator* everyone,
                                  bool shares, int64_t* sharing) {
    const bool leads = layout.local_of[static_cast<size_t>(rank)] == 0;
    *sharing = shares && leads ? 1 : 0;
    return everyone->AllReduce(sharing, sharing, 1, DType::kInt64, Reduction());
  }

  // A host whose ranks cannot share memory uses the transport between hosts for its local messages,
  // too; then `transport` keeps the launcher's control plane.
  Status JoinHosts(const Group& group, Communicator* everyone, Transport* transport) const {
    const HostLayout& layout = group.layout;
    if (layout.hosts() == layout.size()) return Status::Unavailable("every host has one rank");
    std::unique_ptr<Communicator> host;
    TFHVD_RETURN_IF_ERROR(world_->OpenCommunicator(Neighbours(group), &host));
    Transport local;
    const bool control = transport->control != nullptr;
    const Status shared = ShareMemory(group, host.get(), control, &local);
    if (!shared.ok() && shared.code() != StatusCode::kUnavailable) return shared;
    int64_t sharing = 0;
    TFHVD_RETURN_IF_ERROR(CountSharingHosts(layout, group.self, everyone, shared.ok(), &sharing));
    if (sharing == 0) return Status::Unavailable("the ranks of no host can share memory");
    if (!shared.ok()) local.communicator = std::move(host);
    std::unique_ptr<Communicator> across;
    const int lane = layout.local_of[static_cast<size_t>(group.self)];
    if (lane < layout.lanes) {
      TFHVD_RETURN_IF_ERROR(world_->OpenCommunicator(At(group, layout.LaneRanks(lane)), &across));
    }
    transport->communicator = std::make_unique<HierarchicalCommunicator>(
        layout, group.self, std::move(local.communicator), std::move(across), levels_);
    if (!control) return Status::Ok();
    const bool all = sharing == layout.hosts();
    if (all) {
      transport->control = std::make_unique<HierarchicalControlPlane>(
          layout, group.self, std::move(local.control), std::move(transport->control));
    }
    if (group.self == 0) {
      const std::string hosts = std::to_string(layout.hosts()) + " hosts";
      log_.Info("collectives go through shared memory within " +
                (all ? "each" : std::to_string(sharing)) + " of " + hosts + " and through " +
                world_->description() + (all ? " across" : " elsewhere") +
                "; lanes: " + std::to_string(layout.lanes));
    }
    return Status::Ok();
  }

  const Log& log_;
  World* const world_;  // Not owned.
  HierarchicalOptions levels_;
};

// Checks whether the wanted transport is possible in a job of these hosts.
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

// SelectTransport without the part for votes.
Status SelectFaster(const Config& config, const Topology& topology, const Log& log, World* world,
                    std::unique_ptr<Communicator>* communicator,
                    std::unique_ptr<ControlPlane>* control) {
  if (config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
  Transport transport;
  transport.control = std::move(*control);
  std::vector<int> everyone(static_cast<size_t>(topology.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  Status status = CheckWanted(config, topology);
  if (status.ok()) {
    status = TransportSelector(config, log, world)
                 .Find(MakeGroup(everyone, topology.rank, topology.host_of), communicator->get(),
                       &transport);
  }
  *control = std::move(transport.control);
  if (status.ok()) *communicator = std::move(transport.communicator);
  if (status.code() != StatusCode::kUnavailable) return status;
  if (config.cpu_operations != CpuOperations::kAuto) {
    const bool shm = config.cpu_operations == CpuOperations::kShm;
    return Status::Unavailable(
        std::string("TFHVD_CPU_OPERATIONS=") + (shm ? "shm" : "hierarchical") +
        " is not possible: " + status.message() + ". Unset it, or set it to mpi.");
  }
  if (topology.rank == 0) log.Info("collectives go through MPI: " + status.message());
  return Status::Ok();
}

// Ranks that share no memory vote by messages, as if each were on a separate host.
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

Status SelectTransport(const Config& config, const Topology& topology, const Log& log, World* world,
                       std::unique_ptr<Communicator>* communicator,
                       std::unique_ptr<ControlPlane>* control) {
  if (topology.size == 1) return Status::Ok();
  TFHVD_RETURN_IF_ERROR(SelectFaster(config, topology, log, world, communicator, control));
  return (*control)->votes() != nullptr ? Status::Ok() : LetVote(topology, control);
}

CommunicatorFactory MakeCommunicatorFactory(const Config& config, const Topology& topology,
                                            const Log& log, World* world) {
  return [config, topology, log, world](const std::vector<int>& members,
                                        std::unique_ptr<Communicator>* out) {
    TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(members, out));
    if (members.size() == 1 || config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
    Transport transport;
    const Group group = MakeGroup(members, topology.rank, topology.host_of);
    const Status found = TransportSelector(config, log, world).Find(group, out->get(), &transport);
    if (found.ok()) *out = std::move(transport.communicator);
    return found.code() == StatusCode::kUnavailable ? Status::Ok() : found;
  };
}

}  // namespace tfhvd
