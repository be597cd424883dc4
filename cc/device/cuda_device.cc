#include "cc/device/cuda_device.h"

#include <algorithm>
#include <chrono>

#include "cc/base/backoff.h"

namespace tfhvd {
namespace {

using Clock = std::chrono::steady_clock;

cuda::Pointer Address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

cuda::Event EventOf(const std::shared_ptr<void>& mark) {
  return static_cast<cuda::Event>(mark.get());
}

}  // namespace

CudaDevice::~CudaDevice() {
  if (!bound_.load()) return;
  const CudaScope scope(driver_, context_);
  if (scratch_ != 0) driver_.cuMemFree_v2(scratch_);
  copies_.UnloadKernel();
  driver_.cuStreamDestroy_v2(stream_);
  // The context stays: TensorFlow uses it, too, and marks may be released later.
}

// Any thread; the first call opens the GPU.
Status CudaDevice::Bind(void* stream, const void* memory) {
  int ordinal = 0;
  if (memory != nullptr) {
    TFHVD_RETURN_IF_ERROR(OrdinalOf(memory, &ordinal));
  } else if (bound_.load()) {
    return Status::Ok();
  } else if (!OrdinalOfStream(stream, &ordinal)) {
    return Prepare();
  }
  TFHVD_RETURN_IF_ERROR(OpenOnce(ordinal));
  if (ordinal == ordinal_) return Status::Ok();
  return Status::InvalidArgument(
      "the tensors of one rank are on two GPUs. Received: a tensor on GPU " +
      std::to_string(ordinal) + ". Expected: all on GPU " + std::to_string(ordinal_) +
      ", where the first one was. Give each rank one GPU: "
      "tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU') before the first tensor.");
}

Status CudaDevice::OrdinalOf(const void* memory, int* ordinal) const {
  const cuda::Result result =
      driver_.cuPointerGetAttribute(ordinal, cuda::kPointerDeviceOrdinal, Address(memory));
  if (result == cuda::kSuccess) return Status::Ok();
  return Status::Internal(
      "TensorFlow says that a tensor is on a GPU, but its memory is not a GPU's: " +
      driver_.ErrorText(result));
}

// The stream of an empty tensor also gives its GPU.
bool CudaDevice::OrdinalOfStream(void* stream, int* ordinal) const {
  cuda::Context context = nullptr;
  if (driver_.cuStreamGetCtx(static_cast<cuda::Stream>(stream), &context) != cuda::kSuccess) {
    return false;
  }
  const CudaScope scope(driver_, context);
  return driver_.cuCtxGetDevice(ordinal) == cuda::kSuccess;
}

Status CudaDevice::OpenOnce(int ordinal) {
  if (bound_.load()) return Status::Ok();
  const MutexLock lock(&bind_mutex_);
  if (bound_.load()) return Status::Ok();
  TFHVD_RETURN_IF_ERROR(Open(ordinal));
  bound_.store(true);
  return Status::Ok();
}

Status CudaDevice::Open(int ordinal) {
  int device = 0;
  TFHVD_CUDA_CALL(driver_, cuDeviceGet(&device, ordinal));
  // The context of TensorFlow and NCCL.
  TFHVD_CUDA_CALL(driver_, cuDevicePrimaryCtxRetain(&context_, device));
  const CudaScope scope(driver_, context_);
  int least = 0;
  int greatest = 0;
  TFHVD_CUDA_CALL(driver_, cuCtxGetStreamPriorityRange(&least, &greatest));
  // With priority over the computation: the slowest rank waits for collectives.
  TFHVD_CUDA_CALL(driver_,
                  cuStreamCreateWithPriority(&stream_, cuda::kStreamNonBlocking, greatest));
  events_ = std::make_shared<CudaEvents>(driver_, context_);
  ordinal_ = ordinal;
  kernel_ = copies_.LoadKernel();
  return Status::Ok();
}

Status CudaDevice::Identify(cuda::Uuid* uuid, std::string* description) const {
  int device = 0;
  char name[256] = {0};
  TFHVD_CUDA_CALL(driver_, cuDeviceGet(&device, ordinal_));
  TFHVD_CUDA_CALL(driver_, cuDeviceGetUuid_v2(uuid, device));
  TFHVD_CUDA_CALL(driver_, cuDeviceGetName(name, static_cast<int>(sizeof name) - 1, device));
  *description = "GPU " + std::to_string(ordinal_) + " (" + name + ")";
  return Status::Ok();
}

Status CudaDevice::Mark(void* stream, const void* memory, std::shared_ptr<void>* mark) {
  TFHVD_RETURN_IF_ERROR(Bind(stream, memory));
  return events_->Record(static_cast<cuda::Stream>(stream), mark);
}

Status CudaDevice::Await(const std::shared_ptr<void>& mark) {
  if (mark == nullptr) return Status::Ok();
  // Copies that are collected but not enqueued wait for the mark, too. That is harmless: they
  // belong to the same plan, or Release flushes them.
  unmarked_ = true;  // a Drain must wait for the mark, too
  const CudaScope scope(driver_, context_);
  TFHVD_CUDA_CALL(driver_, cuStreamWaitEvent(stream_, EventOf(mark), 0));
  return Status::Ok();
}

Status CudaDevice::AwaitStream(void* stream) {
  std::shared_ptr<void> mark;
  TFHVD_RETURN_IF_ERROR(events_->Record(static_cast<cuda::Stream>(stream), &mark));
  return Await(mark);
}

Status CudaDevice::Release(void* stream) {
  TFHVD_RETURN_IF_ERROR(RecordProgress());
  return Follow(stream, progress_);
}

Status CudaDevice::MarkEnd(std::shared_ptr<void>* mark) {
  TFHVD_RETURN_IF_ERROR(RecordProgress());
  *mark = progress_;
  return Status::Ok();
}

Status CudaDevice::Follow(void* stream, const std::shared_ptr<void>& mark) {
  if (mark == nullptr) return Status::Ok();
  const CudaScope scope(driver_, context_);
  TFHVD_CUDA_CALL(driver_, cuStreamWaitEvent(static_cast<cuda::Stream>(stream), EventOf(mark), 0));
  return Status::Ok();
}

Status CudaDevice::RecordProgress() {
  if (!unmarked_ && progress_ != nullptr) return Status::Ok();
  cuda::Stream stream = nullptr;
  TFHVD_RETURN_IF_ERROR(Flush(&stream));
  TFHVD_RETURN_IF_ERROR(events_->Record(stream, &progress_));
  unmarked_ = false;
  return Status::Ok();
}

Status CudaDevice::Flush(cuda::Stream* stream) {
  unmarked_ = true;
  *stream = stream_;
  const CudaScope scope(driver_, context_);
  return copies_.Flush(stream_);
}

bool CudaDevice::busy() {
  if (!bound_.load() || (progress_ == nullptr && !unmarked_)) return false;
  if (!RecordProgress().ok()) return false;  // a broken stream does no more work
  const CudaScope scope(driver_, context_);
  return driver_.cuEventQuery(EventOf(progress_)) == cuda::kNotReady;
}

Status CudaDevice::Drain() {
  if (!bound_.load()) return Status::Ok();
  return Wait(poll_hook_);
}

Status CudaDevice::Wait(const PollHook& hook) {
  TFHVD_RETURN_IF_ERROR(RecordProgress());
  const CudaScope scope(driver_, context_);
  const Clock::time_point since = Clock::now();
  cuda::Result result;
  for (Backoff backoff;; backoff.Pause()) {
    result = driver_.cuEventQuery(EventOf(progress_));
    if (result != cuda::kNotReady) break;
    if (!hook || backoff.next_sleep_ns() == 0) continue;
    TFHVD_RETURN_IF_ERROR(hook(std::chrono::duration<double>(Clock::now() - since).count()));
  }
  if (result != cuda::kSuccess) return driver_.Failed("work on the GPU", result);
  return Status::Ok();
}

Status CudaDevice::Scratch(int64_t bytes, char** out) {
  if (bytes > capacity_) {
    // The old buffer must not be in use any more.
    TFHVD_RETURN_IF_ERROR(Drain());
    TFHVD_RETURN_IF_ERROR(Allocate(bytes));
  }
  *out = reinterpret_cast<char*>(static_cast<uintptr_t>(scratch_));
  return Status::Ok();
}

Status CudaDevice::Allocate(int64_t bytes) {
  const CudaScope scope(driver_, context_);
  const int64_t needed = (bytes + 0xfffff) & ~int64_t{0xfffff};
  const int64_t doubled = std::max(needed, 2 * capacity_);
  if (scratch_ != 0) TFHVD_CUDA_CALL(driver_, cuMemFree_v2(scratch_));
  scratch_ = 0;
  capacity_ = 0;
  cuda::Result result = cuda::kSuccess;
  // Growing in small steps would wait for the GPU each time, but TensorFlow may have left little
  // memory.
  for (const int64_t size : {doubled, needed}) {
    result = driver_.cuMemAlloc_v2(&scratch_, static_cast<size_t>(size));
    if (result == cuda::kSuccess) {
      capacity_ = size;
      return Status::Ok();
    }
    scratch_ = 0;
  }
  return Status::Unavailable("no memory on GPU " + std::to_string(ordinal_) +
                             " for a fusion buffer of " + std::to_string(needed) +
                             " bytes: " + driver_.ErrorText(result) +
                             ". Lower TFHVD_FUSION_THRESHOLD, or let TensorFlow leave some memory "
                             "(TF_FORCE_GPU_ALLOW_GROWTH=true).");
}

Status CudaDevice::CopyScaled(void* to, const void* from, int64_t count, DType dtype,
                              double factor) {
  if (!kernel_.ok()) return Device::CopyScaled(to, from, count, dtype, factor);
  unmarked_ = true;
  copies_.AddScaled(to, dtype, from, dtype, count, factor);
  return Status::Ok();
}

// Enqueued after the collected copies, which may read this memory.
Status CudaDevice::Zero(void* to, int64_t bytes) {
  if (bytes == 0) return Status::Ok();
  cuda::Stream stream = nullptr;
  TFHVD_RETURN_IF_ERROR(Flush(&stream));
  const CudaScope scope(driver_, context_);
  TFHVD_CUDA_CALL(driver_, cuMemsetD8Async(Address(to), 0, static_cast<size_t>(bytes), stream));
  return Status::Ok();
}

Status CudaDevice::Copy(void* to, const void* from, int64_t bytes) {
  unmarked_ = true;
  copies_.Add(to, from, bytes);
  return Status::Ok();
}

// Drains first, so that no work that may hang precedes the copy: the copy cannot outlive the call,
// and so not the caller's memory.
template <typename Enqueue>
Status CudaDevice::CopyNow(const char* name, const Enqueue& enqueue) {
  TFHVD_RETURN_IF_ERROR(Drain());
  {
    const CudaScope scope(driver_, context_);
    const cuda::Result result = enqueue();
    if (result != cuda::kSuccess) return driver_.Failed(name, result);
  }
  unmarked_ = true;
  return Wait(nullptr);
}

Status CudaDevice::CopyToHost(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return Status::Ok();
  return CopyNow("cuMemcpyDtoHAsync", [&] {
    return driver_.cuMemcpyDtoHAsync_v2(to, Address(from), static_cast<size_t>(bytes), stream_);
  });
}

Status CudaDevice::CopyFromHost(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return Status::Ok();
  return CopyNow("cuMemcpyHtoDAsync", [&] {
    return driver_.cuMemcpyHtoDAsync_v2(Address(to), from, static_cast<size_t>(bytes), stream_);
  });
}

}  // namespace tfhvd
