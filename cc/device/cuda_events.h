// CudaEvents: reusable events of one CUDA context. CudaScope: the context on a thread.
#pragma once

#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/device/cuda_driver.h"

namespace tfhvd {

// Makes the context current on this thread during the life of this object. TensorFlow's threads
// have other contexts.
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

// A cache of events, because creating one takes longer than recording it. Any thread.
class CudaEvents : public std::enable_shared_from_this<CudaEvents> {
 public:
  CudaEvents(const CudaDriver& driver, cuda::Context context)
      : driver_(driver), context_(context) {}
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  // Records an event after the present work on `stream`. The event returns to the cache when `mark`
  // is released, even while a stream waits for it: a wait refers to the state at its beginning.
  Status Record(cuda::Stream stream, std::shared_ptr<void>* mark) TFHVD_EXCLUDES(mutex_);

 private:
  Status Take(cuda::Event* event) TFHVD_EXCLUDES(mutex_);

  const CudaDriver driver_;
  const cuda::Context context_;
  Mutex mutex_;
  std::vector<cuda::Event> free_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
