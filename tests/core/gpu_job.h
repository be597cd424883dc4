// A process with a GPU, alone or a rank of a job under mpirun, as its settings say: what gpu_times
// and gpu_conformance begin with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/mpi/mpi_world.h"
#include "cc/backends/nccl/nccl_api.h"
#include "cc/base/config.h"
#include "cc/device/cuda_driver.h"
#include "cc/rendezvous/handshake.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

struct GpuJob {
  Config config;
  std::unique_ptr<World> world = MakeSoloWorld();
  std::unique_ptr<Communicator> host;  // of all ranks, on host memory
  Topology topology;
  CudaDriver driver;
  NcclApi api;
  int gpus = 0;

  // Once, before anything else is used.
  Status Open() {
    std::vector<std::string> warnings;
    TFHVD_RETURN_IF_ERROR(ReadConfig(&config, &warnings));
    const LaunchHints hints = ReadLaunchHints();
    if (hints.started_by_mpi) TFHVD_RETURN_IF_ERROR(ConnectMpiWorld(config, hints, &world));
    TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(AllOf(world->size()), &host));
    TFHVD_RETURN_IF_ERROR(ExchangeHandshakes(host.get(), &config, &topology));
    TFHVD_RETURN_IF_ERROR(LoadCudaDriver(config.cuda_library, &driver));
    TFHVD_RETURN_IF_ERROR(LoadNccl(config.nccl_library, "", &api));
    TFHVD_CUDA_CALL(driver, cuDeviceGetCount(&gpus));
    return Status::Ok();
  }
  // At the end, after whatever uses `host` is gone.
  void Close() {
    host.reset();
    EXPECT_OK(world->Close());
  }

  int gpu() const { return GpuOf(topology, gpus); }
};

}  // namespace testing
}  // namespace tfhvd
