#include "cc/process/choose.h"

#include "cc/backends/shm/shm_communicator.h"

namespace tfhvd {

Status ChooseCommunicator(const Config& config, const Topology& topology, const Log& log,
                          std::unique_ptr<Communicator>* communicator) {
  if (topology.size == 1 || config.cpu_operations == CpuOperations::kMpi) return Status::Ok();
  const bool must = config.cpu_operations == CpuOperations::kShm;
  Status status;
  if (topology.local_size < topology.size) {
    status = Status::Unavailable("the ranks are on several hosts");
  } else {
    ShmOptions options;
    options.stall_check_time = config.stall_check ? config.stall_check_time : 0.0;
    options.log = log;
    std::unique_ptr<Communicator> shm;
    status = MakeShmCommunicator(communicator->get(), options, &shm);
    if (status.ok()) *communicator = std::move(shm);
  }
  if (status.code() != StatusCode::kUnavailable) return status;
  if (must) {
    return Status::Unavailable("TFHVD_CPU_OPERATIONS=shm cannot be had: " + status.message() +
                               ". Unset it, or set it to mpi.");
  }
  if (topology.rank == 0) log.Info("collectives go through MPI: " + status.message());
  return Status::Ok();
}

}  // namespace tfhvd
