#include "cc/process/choose.h"

#include <algorithm>
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
  std::unique_ptr<ControlPlane> control;
};

// For the ranks of this rank's host.
ShmOptions OptionsFor(const Config& config, const Topology& topology, const Log& log) {
  ShmOptions options;
  for (int r = 0; r < topology.size; ++r) {
    if (topology.host_of[r] == topology.host_of[topology.rank]) options.job_ranks.push_back(r);
  }
  options.stall_check_time = config.stall_check ? config.stall_check_time : 0.0;
  options.log = log;
  return options;
}

// Collective over `host`, whose ranks are all on one host. kUnavailable where they cannot share
// memory: on all of them.
Status ShareMemory(const Config& config, const Topology& topology, const Log& log,
                   Communicator* host, Means* means) {
  TFHVD_RETURN_IF_ERROR(
      MakeShmCommunicator(host, OptionsFor(config, topology, log), &means->communicator));
  return MakeShmControlPlane(host, &means->control);
}

// Collective over all ranks: `mine` where every rank's is ok, else kUnavailable on all.
Status Everyone(Communicator* everyone, const Status& mine) {
  int64_t bad = mine.ok() ? 0 : 1;
  Reduction max;
  max.op = ReduceOp::kMax;
  TFHVD_RETURN_IF_ERROR(everyone->AllReduce(&bad, &bad, 1, DType::kInt64, max));
  if (!mine.ok() || bad == 0) return mine;
  return Status::Unavailable("the ranks of another host cannot share memory");
}

// `means` holds the starter's control plane before, and everything after.
Status JoinHosts(const Config& config, const Topology& topology, const Log& log, World* world,
                 Communicator* everyone, Means* means) {
  const HostLayout layout = MakeHostLayout(topology.host_of);
  if (layout.hosts() == topology.size) {
    return Status::Unavailable("every host has one rank");
  }
  const int rank = topology.rank;
  std::unique_ptr<Communicator> host;
  TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(layout.ranks_of[topology.host_of[rank]], &host));
  Means local;
  const Status shared = ShareMemory(config, topology, log, host.get(), &local);
  if (!shared.ok() && shared.code() != StatusCode::kUnavailable) return shared;
  TFHVD_RETURN_IF_ERROR(Everyone(everyone, shared));
  std::unique_ptr<Communicator> across;
  if (topology.local_rank < layout.lanes) {
    TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(layout.LaneRanks(topology.local_rank), &across));
  }
  means->communicator = std::make_unique<HierarchicalCommunicator>(
      layout, rank, std::move(local.communicator), std::move(across));
  means->control = std::make_unique<HierarchicalControlPlane>(
      layout, rank, std::move(local.control), std::move(means->control));
  if (rank == 0) {
    log.Info("collectives go through shared memory within each of " +
             std::to_string(layout.hosts()) + " hosts and through " + world->description() +
             " across; lanes: " + std::to_string(layout.lanes));
  }
  return Status::Ok();
}

// kUnavailable where nothing is faster than what the starter gave, or `wanted` cannot be had.
Status FindFaster(const Config& config, const Topology& topology, const Log& log, World* world,
                  Communicator* everyone, Means* means) {
  const bool one_host = topology.local_size == topology.size;
  switch (config.cpu_operations) {
    case CpuOperations::kShm:
      if (!one_host) return Status::Unavailable("the ranks are on several hosts");
      break;
    case CpuOperations::kHierarchical:
      if (one_host) return Status::Unavailable("all ranks are on one host");
      break;
    default:
      break;
  }
  return one_host ? ShareMemory(config, topology, log, everyone, means)
                  : JoinHosts(config, topology, log, world, everyone, means);
}

// What ChooseMeans does for whatever is not the ranks' voting.
Status ChooseFaster(const Config& config, const Topology& topology, const Log& log, World* world,
                    std::unique_ptr<Communicator>* communicator,
                    std::unique_ptr<ControlPlane>* control) {
  if (config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
  Means means;
  means.control = std::move(*control);
  const Status status = FindFaster(config, topology, log, world, communicator->get(), &means);
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
  return [config, host_of = topology.host_of, log, world](const std::vector<int>& members,
                                                          std::unique_ptr<Communicator>* out) {
    std::unique_ptr<Communicator> given;
    TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(members, &given));
    const bool one_host = std::all_of(members.begin(), members.end(),
                                      [&](int r) { return host_of[r] == host_of[members[0]]; });
    if (one_host && members.size() > 1 && config.cpu_operations != CpuOperations::kMpi) {
      ShmOptions options;
      options.job_ranks = members;
      options.stall_check_time = config.stall_check ? config.stall_check_time : 0.0;
      options.log = log;
      const Status shared = MakeShmCommunicator(given.get(), options, out);
      if (shared.code() != StatusCode::kUnavailable) return shared;
    }
    *out = std::move(given);
    return Status::Ok();
  };
}

}  // namespace tfhvd
