// CudaDevice: one GPU of this process, through the driver API. All its work goes onto one stream,
// in order; the fusion buffer is in the GPU's memory.
//
// The first tensor decides which GPU it is, because the framework chooses it. `ordinal` is the GPU
// of a rank that takes part without ever having had a tensor on one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cc/base/mutex.h"
#include "cc/device/cuda_copies.h"
#include "cc/device/cuda_driver.h"
#include "cc/device/cuda_events.h"
#include "cc/device/device.h"

namespace tfhvd {

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const CudaDriver& driver, int ordinal = 0)
      : driver_(driver), ordinal_(ordinal), copies_(&driver_) {}
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::kGpu; }
  Status Scratch(int64_t bytes, char** out) override;
  Status Zero(void* to, int64_t bytes) override;
  Status Copy(void* to, const void* from, int64_t bytes) override;
  Status CopyScaled(void* to, const void* from, int64_t count, DType dtype, double factor) override;
  Status CopyToHost(void* to, const void* from, int64_t bytes) override;
  Status CopyFromHost(void* to, const void* from, int64_t bytes) override;
  Status Mark(void* stream, const void* memory, std::shared_ptr<void>* mark) override;
  Status Await(const std::shared_ptr<void>& mark) override;
  Status AwaitStream(void* stream) override;
  Status Release(void* stream) override;
  Status MarkEnd(std::shared_ptr<void>* mark) override;
  Status Follow(void* stream, const std::shared_ptr<void>& mark) override;
  bool busy() override;
  Status Drain() override;
  void SetPollHook(PollHook hook) override { poll_hook_ = std::move(hook); }

  // Opens the GPU if no tensor has opened it yet.
  Status Prepare() TFHVD_EXCLUDES(bind_mutex_) { return OpenOnce(ordinal_); }

  // For other users of this device. REQUIRES: Prepare or a Mark has succeeded.

  // Enqueues all collected copies on the stream, for work that is enqueued next.
  Status Flush(cuda::Stream* stream);
  // For scaled copies, which the next Flush or Release enqueues.
  CudaCopies* copies() {
    unmarked_ = true;
    return &copies_;
  }
  // Returns why our kernel cannot be loaded; ok if it is loaded.
  const Status& kernel() const { return kernel_; }
  const CudaDriver& driver() const { return driver_; }
  cuda::Context context() const { return context_; }
  // Returns the GPU's identity, equal for two processes that use the same GPU; and a description
  // for messages, "GPU 0 (NVIDIA H100)".
  Status Identify(cuda::Uuid* uuid, std::string* description) const;

 private:
  Status Bind(void* stream, const void* memory) TFHVD_EXCLUDES(bind_mutex_);
  Status OpenOnce(int ordinal) TFHVD_EXCLUDES(bind_mutex_);
  Status Open(int ordinal);
  Status OrdinalOf(const void* memory, int* ordinal) const;
  bool OrdinalOfStream(void* stream, int* ordinal) const;
  Status RecordProgress();
  Status Wait(const PollHook& hook);
  template <typename Enqueue>
  Status CopyNow(const char* name, const Enqueue& enqueue);
  Status Allocate(int64_t bytes);

  const CudaDriver driver_;

  Mutex bind_mutex_;
  std::atomic<bool> bound_{false};
  // Written once before bound_ is set, constant afterwards.
  int ordinal_;
  cuda::Context context_ = nullptr;
  cuda::Stream stream_ = nullptr;
  std::shared_ptr<CudaEvents> events_;
  Status kernel_;

  // Used by the engine's thread only.
  PollHook poll_hook_;
  CudaCopies copies_;
  cuda::Pointer scratch_ = 0;
  int64_t capacity_ = 0;
  std::shared_ptr<void> progress_;  // marks all work before `unmarked_`
  bool unmarked_ = false;           // work was requested after progress_
};

}  // namespace tfhvd
