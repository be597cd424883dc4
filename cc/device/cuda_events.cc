#include "cc/device/cuda_events.h"

namespace tfhvd {

CudaEvents::~CudaEvents() {
  const CudaScope scope(driver_, context_);
  const MutexLock lock(&mutex_);
  for (const cuda::Event event : free_) driver_.cuEventDestroy_v2(event);
}

Status CudaEvents::Take(cuda::Event* event) {
  {
    const MutexLock lock(&mutex_);
    if (!free_.empty()) {
      *event = free_.back();
      free_.pop_back();
      return Status::Ok();
    }
  }
  TFHVD_CUDA_CALL(driver_, cuEventCreate(event, cuda::kEventDisableTiming));
  return Status::Ok();
}

Status CudaEvents::Record(cuda::Stream stream, std::shared_ptr<void>* mark) {
  const CudaScope scope(driver_, context_);
  cuda::Event event = nullptr;
  TFHVD_RETURN_IF_ERROR(Take(&event));
  const std::shared_ptr<CudaEvents> self = shared_from_this();
  mark->reset(event, [self](void* used) {
    const MutexLock lock(&self->mutex_);
    self->free_.push_back(static_cast<cuda::Event>(used));
  });
  TFHVD_CUDA_CALL(driver_, cuEventRecord(event, stream));
  return Status::Ok();
}

}  // namespace tfhvd
