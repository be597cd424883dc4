#include "cc/process/accelerator.h"

#include <utility>

#include "cc/backends/nccl/agreement.h"
#include "cc/backends/nccl/nccl_api.h"
#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/collectives/staged_communicator.h"
#include "cc/device/cuda_device.h"
#include "cc/device/cuda_driver.h"

namespace tfhvd {
namespace {

// Uses NCCL if every rank has it, and our kernel, which does what NCCL cannot; otherwise the
// collectives pass through host memory. TFHVD_GPU_OPERATIONS can choose.
class GpuBackend : public Backend {
 public:
  GpuBackend(const Config& config, std::string installed_nccl, const Log& log, CudaDevice* device)
      : config_(config), installed_nccl_(std::move(installed_nccl)), log_(log), device_(*device) {}

  const char* name() const override { return "gpu"; }

  Status Open(Communicator* host, std::unique_ptr<Communicator>* out) override {
    std::unique_ptr<Communicator> staged = MakeStagedCommunicator(&device_, host);
    Status nccl = Status::Unavailable("TFHVD_GPU_OPERATIONS=host");
    NcclApi api;
    if (config_.gpu_operations != GpuOperations::kHost) {
      nccl = LoadNccl(config_.nccl_library, installed_nccl_, &api);
    }
    const Status prepared = device_.Prepare();
    if (!prepared.ok()) nccl = prepared;
    if (nccl.ok() && !device_.kernel().ok()) {
      nccl = Status::Unavailable("tfhvd's kernel for the GPU cannot be loaded: " +
                                 device_.kernel().message());
    }
    nccl = AgreeOnStatus(host, nccl);
    if (nccl.ok()) {
      return NcclCommunicator::Make(api, &device_, host, std::move(staged),
                                    {config_.gpu_init_timeout, config_.shared_gpu, log_}, out);
    }
    if (nccl.code() != StatusCode::kUnavailable) return nccl;
    if (config_.gpu_operations == GpuOperations::kNccl) {
      return Status::Unavailable("TFHVD_GPU_OPERATIONS=nccl is not possible: " + nccl.message() +
                                 ". Unset it, or set it to host.");
    }
    if (config_.gpu_operations == GpuOperations::kAuto && host->rank() == 0 && host->size() > 1) {
      log_.Warning("collectives on GPU tensors go through the host, which is slow: " +
                   nccl.message());
    }
    *out = std::move(staged);
    return Status::Ok();
  }

 private:
  const Config config_;
  const std::string installed_nccl_;
  const Log log_;
  CudaDevice& device_;  // Not owned.
};

}  // namespace

Accelerator MakeAccelerator(const Config& config, const std::string& installed_nccl,
                            const Topology& topology, const Log& log) {
  CudaDriver driver;
  int gpus = 0;
  Status status = LoadCudaDriver(config.cuda_library, &driver);
  if (status.ok() && (driver.cuDeviceGetCount(&gpus) != cuda::kSuccess || gpus == 0)) {
    status = Status::Unavailable("the GPU is gone");
  }
  if (!status.ok()) {
    log.Debug("tensors on GPUs are not possible: " + status.message());
    return {};
  }
  auto device = std::make_unique<CudaDevice>(driver, GpuOf(topology, gpus));
  auto backend = std::make_unique<GpuBackend>(config, installed_nccl, log, device.get());
  return {std::move(device), std::move(backend)};
}

Status ProbeCuda(const Config& config, std::string* description) {
  CudaDriver driver;
  TFHVD_RETURN_IF_ERROR(LoadCudaDriver(config.cuda_library, &driver));
  int count = 0;
  TFHVD_CUDA_CALL(driver, cuDeviceGetCount(&count));
  *description = std::to_string(count) + (count == 1 ? " GPU" : " GPUs") + ", driver for CUDA " +
                 driver.Version();
  return Status::Ok();
}

Status ProbeNccl(const Config& config, const std::string& installed_nccl,
                 std::string* description) {
  NcclApi api;
  TFHVD_RETURN_IF_ERROR(LoadNccl(config.nccl_library, installed_nccl, &api));
  *description = "NCCL " + api.Version() + ", collectives on GPUs";
  return Status::Ok();
}

}  // namespace tfhvd
