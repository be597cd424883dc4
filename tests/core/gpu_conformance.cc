// The suite of all communicators through NCCL on a real GPU, with one rank: for tests/gpu/run.sh.
//
//   gpu_conformance DRIVER_LIBRARY NCCL_LIBRARY
#include <cstdio>
#include <memory>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/backends/staged/staged_communicator.h"
#include "tests/core/conformance.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

void Run(const char* driver_library, const char* nccl_library) {
  CudaDriver driver;
  NcclApi api;
  ASSERT_OK(LoadCudaDriver(driver_library, &driver));
  ASSERT_OK(LoadNccl(nccl_library, "", &api));
  GpuRank gpu(driver, 0);
  const std::unique_ptr<World> world = MakeSoloWorld();
  std::unique_ptr<Communicator> host;
  ASSERT_OK(world->OpenCommunicator({0}, &host));
  cuda::Uuid uuid;
  std::string description;
  ASSERT_OK(gpu.device.Identify(&uuid, &description));
  std::printf("%s, driver for CUDA %s, NCCL %s, our kernel %s\n", description.c_str(),
              driver.Version().c_str(), api.Version().c_str(),
              gpu.device.copies()->has_kernel() ? "loaded" : "not loaded");
  std::unique_ptr<Communicator> comm;
  ASSERT_OK(NcclCommunicator::Make(api, &gpu.device, host.get(),
                                   MakeStagedCommunicator(&gpu.device, host.get()), NcclOptions(),
                                   &comm));
  ByWayOfTheGpu on_host(&gpu, comm.get());
  Conformance(&on_host, 1, /*exact=*/false).RunAll();
  CheckAbort(&on_host);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s DRIVER_LIBRARY NCCL_LIBRARY\n", argv[0]);
    return 2;
  }
  tfhvd::testing::Run(argv[1], argv[2]);
  const int failures = tfhvd::testing::Registry::Get().failures();
  std::printf("%d failed\n", failures);
  return failures == 0 ? 0 : 1;
}
