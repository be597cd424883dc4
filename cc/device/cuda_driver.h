// CudaDriver: CUDA's driver API, opened at run time: a machine without a GPU needs no part of it.
//
// The library is never closed, because TensorFlow and NCCL use it, too. Thread-safe once loaded.
#pragma once

#include <string>

#include "cc/base/status.h"
#include "cc/device/cuda_abi.h"

namespace tfhvd {

struct CudaDriver {
#define TFHVD_DECLARE(name, ...) cuda::Result (*name)(__VA_ARGS__) = nullptr;
  TFHVD_CUDA_FUNCTIONS(TFHVD_DECLARE)
#undef TFHVD_DECLARE

  // Returns kInternal: "cuMemAlloc failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
  Status Failed(const char* call, cuda::Result result) const;
  std::string ErrorText(cuda::Result result) const;
  std::string Version() const;  // "12.8", the version that the driver supports
};

// `library`: TFHVD_CUDA_LIBRARY; "" turns GPUs off. Returns kUnavailable, with advice, if there is
// no driver or no GPU.
Status LoadCudaDriver(const std::string& library, CudaDriver* out);

}  // namespace tfhvd

// For functions that return a Status, with `driver` a CudaDriver.
#define TFHVD_CUDA_CALL(driver, call)                          \
  do {                                                         \
    const ::tfhvd::cuda::Result tfhvd_result_ = (driver).call; \
    if (tfhvd_result_ != ::tfhvd::cuda::kSuccess) {            \
      return (driver).Failed(#call, tfhvd_result_);            \
    }                                                          \
  } while (false)
