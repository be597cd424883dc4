// Collectives on GPUs of several hosts in two levels: NCCL within each host, and NCCL or the host's
// transport across; by the same code as on hosts.
#pragma once

#include <memory>
#include <vector>

#include "cc/backends/hierarchical/level_memory.h"
#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/comm/world.h"
#include "cc/device/cuda_device.h"

namespace tfhvd {

struct GpuLevels {
  int job_rank = 0;
  std::vector<int> host_of;  // by rank of the job
  CommunicatorFactory open;  // of ranks of the job
  bool nccl_across = true;
  NcclOptions nccl;
};

// Collective over `host`; both outlive the result. `flat` does what the levels cannot do exactly on
// a GPU (integers averaged or scaled; any factor without our kernel). Where each host has one rank,
// or all are on one: for the whole job kUnavailable, on all ranks; for a process set what would
// carry that level.
Status MakeGpuLevels(const NcclApi& api, CudaDevice* device, Communicator* host,
                     std::unique_ptr<Communicator> flat, const GpuLevels& options,
                     std::unique_ptr<Communicator>* out);

// Memory of the GPU, worked on in order on the device's stream.
std::unique_ptr<LevelMemory> MakeGpuLevelMemory(CudaDevice* device);

}  // namespace tfhvd
