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

#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/collectives/staged_communicator.h"
#include "tests/core/conformance.h"
#include "tests/core/gpu_job.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

void Run(bool small) {
  GpuJob job;
  ASSERT_OK(job.Open());
  GpuRank gpu(job.driver, job.gpu());
  cuda::Uuid uuid;
  std::string description;
  ASSERT_OK(gpu.device.Identify(&uuid, &description));
  std::unique_ptr<Communicator> comm;
  NcclOptions options;
  options.shared_gpu = job.config.shared_gpu;
  ASSERT_OK(NcclCommunicator::Make(job.api, &gpu.device, job.host.get(),
                                   MakeStagedCommunicator(&gpu.device, job.host.get()), options,
                                   &comm));
  std::printf("rank %d of %d: %s, driver for CUDA %s, NCCL %s, our kernel %s, by %s\n",
              job.world->rank(), job.world->size(), description.c_str(),
              job.driver.Version().c_str(), job.api.Version().c_str(),
              gpu.device.kernel().ok() ? "loaded" : "not loaded", comm->name());
  std::fflush(stdout);
  ByWayOfTheGpu on_host(&gpu, comm.get());
  // Ranks that take turns on a GPU are slow: what is small and mixed is what is new with them.
  Conformance suite(&on_host, 1, /*exact=*/false);
  if (small || job.world->size() > job.gpus) {
    suite.CheckBarrier();
    suite.CheckMixture();
  } else {
    suite.RunAll();
  }
  if (job.world->size() == 1) CheckAbort(&on_host);
  comm.reset();
  job.Close();
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
