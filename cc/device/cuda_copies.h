// CudaCopies: collects copies on a CUDA stream, and runs them together with one launch of our
// kernel (batched_copy.cu). If the kernel cannot be loaded, the driver makes the copies one after
// the other.
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

  // Loads the kernel. Without it, copies work but scaling does not.
  Status LoadKernel();
  void UnloadKernel();

  // Adds a copy, which must not depend on anything added since the last Flush, except Scale.
  void Add(void* to, const void* from, int64_t bytes);

  // Multiplies the values at `data`. If copies out of it are added before the next Flush, and
  // together cover all of it, multiplies the copies instead, so that the memory is touched only
  // once. REQUIRES: the kernel.
  void Scale(void* data, int64_t count, DType dtype, double factor);

  // Multiplies the values that the plain copies added so far will write to `data`, and returns
  // true, if these copies fill all of it; otherwise does nothing and returns false. REQUIRES: the
  // kernel, unless the factor is 1.
  bool ScaleAdded(const void* data, int64_t count, DType dtype, double factor);

  // Adds a copy that is scaled and may change the type. REQUIRES: the kernel.
  void AddScaled(void* to, DType to_type, const void* from, DType from_type, int64_t count,
                 double factor);

  // Enqueues everything on the stream.
  Status Flush(cuda::Stream stream);

 private:
  // The operation that one launch applies to each of its segments.
  struct Launch {
    DType from_type = DType::kUInt8;
    DType to_type = DType::kUInt8;
    double factor = 1.0;
    std::vector<BatchedCopyArgs::Segment> segments;
  };
  // Memory to be scaled in place, unless it is copied out.
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
