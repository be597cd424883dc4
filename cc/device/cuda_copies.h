// Copies on a CUDA stream that are collected, to be done together by one launch of our kernel
// (batched_copy.cu). Where that cannot be loaded the driver does them one after the other.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/device/batched_copy_args.h"
#include "cc/device/cuda_driver.h"

namespace tfhvd {

class CudaCopies {
 public:
  // `driver` must outlive this object; the context is current at every call.
  explicit CudaCopies(const CudaDriver* driver) : driver_(*driver) {}
  CudaCopies(const CudaCopies&) = delete;
  CudaCopies& operator=(const CudaCopies&) = delete;

  // Loads the kernel. Without it copies work all the same, and scaling does not.
  Status LoadKernel();
  void UnloadKernel();

  // What is added depends on nothing that was added since the last Flush, but for Scale.
  void Add(void* to, const void* from, int64_t bytes);

  // Multiplies what lies at `data` in place, or, where copies out of it are added before the next
  // Flush, the copies, all of it being copied out: it is touched once. REQUIRES: the kernel.
  void Scale(void* data, int64_t count, DType dtype, double factor);

  // Multiplies what the plain copies added so far will have put to `data`, where it is they that
  // fill all of it; otherwise does nothing and says so. REQUIRES: the kernel, unless the factor
  // is 1.
  bool ScaleAdded(const void* data, int64_t count, DType dtype, double factor);

  // A copy that is scaled and may change the type. REQUIRES: the kernel.
  void AddScaled(void* to, DType to_type, const void* from, DType from_type, int64_t count,
                 double factor);

  // Puts everything onto the stream.
  Status Flush(cuda::Stream stream);

 private:
  // What one launch does to each of its segments.
  struct Launch {
    DType from_type = DType::kUInt8;
    DType to_type = DType::kUInt8;
    double factor = 1.0;
    std::vector<BatchedCopyArgs::Segment> segments;
  };
  // Memory that is to be scaled where it lies, unless it is copied out.
  struct Pending {
    char* begin = nullptr;
    int64_t count = 0;
    DType dtype = DType::kFloat32;
    double factor = 1.0;
    bool copied = false;
  };

  Launch* LaunchFor(DType from_type, DType to_type, double factor);
  Status Run(const Launch& launch, cuda::Stream stream);
  Status RunKernel(const Launch& launch, size_t first, size_t n, cuda::Stream stream);

  const CudaDriver& driver_;
  cuda::Module module_ = nullptr;
  cuda::Function kernel_ = nullptr;
  std::vector<Launch> launches_;
  std::vector<Pending> pending_;
};

}  // namespace tfhvd
