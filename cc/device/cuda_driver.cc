#include "cc/device/cuda_driver.h"

#include <dlfcn.h>

namespace tfhvd {
namespace {

// Turns "cuMemAlloc_v2(&pointer, bytes)" into "cuMemAlloc_v2".
std::string FunctionOf(const std::string& call) { return call.substr(0, call.find('(')); }

template <typename Function>
Status Find(void* library, const std::string& file, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function != nullptr) return Status::Ok();
  return Status::Unavailable("the GPU driver (" + file + ") has no " + name +
                             ": it is older than CUDA 12. Update the driver.");
}

}  // namespace

std::string CudaDriver::ErrorText(cuda::Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != cuda::kSuccess || name == nullptr) {
    return "error " + std::to_string(result);
  }
  if (cuGetErrorString(result, &text) != cuda::kSuccess || text == nullptr) return name;
  return std::string(text) + " (" + name + ")";
}

Status CudaDriver::Failed(const char* call, cuda::Result result) const {
  return Status::Internal(FunctionOf(call) + " failed: " + ErrorText(result));
}

std::string CudaDriver::Version() const {
  int version = 0;
  if (cuDriverGetVersion(&version) != cuda::kSuccess) return "unknown";
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Status LoadCudaDriver(const std::string& library, CudaDriver* out) {
  if (library.empty()) return Status::Unavailable("switched off by TFHVD_CUDA_LIBRARY");
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Status::Unavailable("no GPU driver: " + std::string(why != nullptr ? why : library));
  }
  CudaDriver driver;
#define TFHVD_FIND(name, ...) TFHVD_RETURN_IF_ERROR(Find(handle, library, #name, &driver.name));
  TFHVD_CUDA_FUNCTIONS(TFHVD_FIND)
#undef TFHVD_FIND
  int count = 0;
  cuda::Result result = driver.cuInit(0);
  if (result == cuda::kSuccess) result = driver.cuDeviceGetCount(&count);
  if (result != cuda::kSuccess || count == 0) {
    return Status::Unavailable(
        "the GPU driver has no GPU for this process: " +
        (result == cuda::kSuccess ? "none is visible" : driver.ErrorText(result)) +
        ". Check nvidia-smi and CUDA_VISIBLE_DEVICES.");
  }
  *out = driver;
  return Status::Ok();
}

}  // namespace tfhvd
