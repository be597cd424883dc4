// Events of one CUDA context, and the context on a thread.
#pragma once

#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/device/cuda_driver.h"

namespace tfhvd {

// Makes the context this thread's for as long as this object lives. TensorFlow's threads have
// contexts of their own.
class CudaScope {
 public:
  CudaScope(const CudaDriver& driver, cuda::Context context) : driver_(driver) {
    pushed_ = driver_.cuCtxPushCurrent_v2(context) == cuda::kSuccess;
  }
  ~CudaScope() {
    cuda::Context popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaDriver& driver_;
  bool pushed_ = false;
};

// Making an event takes longer than recording one: they are kept. Any thread.
class CudaEvents : public std::enable_shared_from_this<CudaEvents> {
 public:
  CudaEvents(const CudaDriver& driver, cuda::Context context)
      : driver_(driver), context_(context) {}
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  // An event that marks what is on `stream` now. It comes back here when `mark` is let go, also
  // where somebody still waits for it: a wait concerns what had been recorded when it began.
  Status Record(cuda::Stream stream, std::shared_ptr<void>* mark) TFHVD_EXCLUDES(mutex_);

 private:
  Status Take(cuda::Event* event) TFHVD_EXCLUDES(mutex_);

  const CudaDriver driver_;
  const cuda::Context context_;
  Mutex mutex_;
  std::vector<cuda::Event> free_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
