// CudaDevice: one GPU of this process, by the driver API. Everything that it is asked for goes onto
// one stream of its own, in order; the fusion buffer is in the GPU's memory.
//
// Which GPU that is, the first tensor says: the framework chooses it. `ordinal` is the one of a
// rank that never had a tensor there and takes part all the same.
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

  // Opens the GPU where no tensor has yet.
  Status Prepare() TFHVD_EXCLUDES(bind_mutex_) { return OpenOnce(ordinal_); }

  // For what else works on this device; REQUIRES that Prepare or a Mark has succeeded.

  // Puts what was collected onto the stream, for work that is put there next.
  Status Flush(cuda::Stream* stream);
  // For scaled copies, which go onto the stream with the next Flush or Release.
  CudaCopies* copies() {
    unmarked_ = true;
    return &copies_;
  }
  // Why our kernel cannot be loaded; ok where it is.
  const Status& kernel() const { return kernel_; }
  const CudaDriver& driver() const { return driver_; }
  cuda::Context context() const { return context_; }
  // The GPU's own identity, equal for two processes that use the same one; and for messages
  // "GPU 0 (NVIDIA H100)".
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

  // The engine thread's.
  PollHook poll_hook_;
  CudaCopies copies_;
  cuda::Pointer scratch_ = 0;
  int64_t capacity_ = 0;
  std::shared_ptr<void> progress_;  // marks all that was asked for before `unmarked_`
  bool unmarked_ = false;           // something was asked for since
};

}  // namespace tfhvd
