#include "cc/process/choose.h"

#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/shm_control_plane.h"

namespace tfhvd {
namespace {

Status UseSharedMemory(const Config& config, const Topology& topology, const Log& log,
                       std::unique_ptr<Communicator>* communicator,
                       std::unique_ptr<ControlPlane>* control) {
  if (topology.local_size < topology.size) {
    return Status::Unavailable("the ranks are on several hosts");
  }
  ShmOptions options;
  options.stall_check_time = config.stall_check ? config.stall_check_time : 0.0;
  options.log = log;
  std::unique_ptr<Communicator> shm;
  std::unique_ptr<ControlPlane> lines;
  TFHVD_RETURN_IF_ERROR(MakeShmCommunicator(communicator->get(), options, &shm));
  TFHVD_RETURN_IF_ERROR(MakeShmControlPlane(communicator->get(), &lines));
  *communicator = std::move(shm);
  *control = std::move(lines);
  return Status::Ok();
}

}  // namespace

Status ChooseMeans(const Config& config, const Topology& topology, const Log& log,
                   std::unique_ptr<Communicator>* communicator,
                   std::unique_ptr<ControlPlane>* control) {
  if (topology.size == 1 || config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
  const Status status = UseSharedMemory(config, topology, log, communicator, control);
  if (status.code() != StatusCode::kUnavailable) return status;
  if (config.cpu_operations == CpuOperations::kShm) {
    return Status::Unavailable("TFHVD_CPU_OPERATIONS=shm cannot be had: " + status.message() +
                               ". Unset it, or set it to mpi.");
  }
  if (topology.rank == 0) log.Info("collectives go through MPI: " + status.message());
  return Status::Ok();
}

}  // namespace tfhvd
