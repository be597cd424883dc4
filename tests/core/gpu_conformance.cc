// The suite of all communicators through NCCL in processes, for tests/gpu/run.sh on a GPU and
// test_gpu_conformance.py on the fakes: alone, or as a job, whose ranks may share the GPUs that
// there are. The libraries are those of TFHVD_CUDA_LIBRARY and TFHVD_NCCL_LIBRARY.
//
//   [mpirun] gpu_conformance
//   [mpirun] gpu_conformance --small   small and mixed sizes alone
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/mpi/mpi_world.h"
#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/backends/staged/staged_communicator.h"
#include "cc/base/config.h"
#include "cc/process/handshake.h"
#include "tests/core/conformance.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

void Run(bool small) {
  Config config;
  std::vector<std::string> warnings;
  ASSERT_OK(ReadConfig(&config, &warnings));
  std::unique_ptr<World> world = MakeSoloWorld();
  const LaunchHints hints = ReadLaunchHints();
  if (hints.started_by_mpi) ASSERT_OK(ConnectMpiWorld(config, hints, &world));
  std::unique_ptr<Communicator> host;
  ASSERT_OK(world->OpenCommunicator(AllOf(world->size()), &host));
  Topology topology;
  ASSERT_OK(ExchangeHandshakes(host.get(), &config, &topology));
  CudaDriver driver;
  NcclApi api;
  int gpus = 0;
  ASSERT_OK(LoadCudaDriver(config.cuda_library, &driver));
  ASSERT_OK(LoadNccl(config.nccl_library, "", &api));
  ASSERT_EQ(driver.cuDeviceGetCount(&gpus), cuda::kSuccess);
  GpuRank gpu(driver, GpuOf(topology, gpus));
  cuda::Uuid uuid;
  std::string description;
  ASSERT_OK(gpu.device.Identify(&uuid, &description));
  std::unique_ptr<Communicator> comm;
  NcclOptions options;
  options.shared_gpu = config.shared_gpu;
  ASSERT_OK(NcclCommunicator::Make(api, &gpu.device, host.get(),
                                   MakeStagedCommunicator(&gpu.device, host.get()), options,
                                   &comm));
  std::printf("rank %d of %d: %s, driver for CUDA %s, NCCL %s, our kernel %s, by %s\n",
              world->rank(), world->size(), description.c_str(), driver.Version().c_str(),
              api.Version().c_str(), gpu.device.copies()->has_kernel() ? "loaded" : "not loaded",
              comm->name());
  std::fflush(stdout);
  ByWayOfTheGpu on_host(&gpu, comm.get());
  // Ranks that take turns on a GPU are slow: what is small and mixed is what is new with them.
  Conformance suite(&on_host, 1, /*exact=*/false);
  if (small || world->size() > gpus) {
    suite.CheckBarrier();
    suite.CheckMixture();
  } else {
    suite.RunAll();
  }
  if (world->size() == 1) CheckAbort(&on_host);
  comm.reset();
  host.reset();
  EXPECT_OK(world->Close());
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) {
  tfhvd::testing::Run(argc > 1 && std::string(argv[1]) == "--small");
  const int failures = tfhvd::testing::Registry::Get().failures();
  std::printf("%d failed\n", failures);
  std::fflush(stdout);
  // What failed may have left its peers waiting: ending the process makes mpirun end them.
  std::_Exit(failures == 0 ? 0 : 1);
}
