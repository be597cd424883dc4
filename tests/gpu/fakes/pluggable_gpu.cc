// A pluggable device of type "GPU" for TensorFlow, on host memory: for tests without a GPU.
//
// Its memory is that of the fake for CUDA's driver (TFHVD_CUDA_LIBRARY), so that tfhvd takes
// its tensors for a GPU's. TensorFlow's stream is the NULL stream, which only what is tested gives
// work to: whatever TensorFlow does waits for it, and is done at once. No kernels but those of the
// libraries under test run on it.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "cc/device/cuda_abi.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

struct SP_Stream_st {};
struct SP_Event_st {};
struct SP_Timer_st {};

namespace {

namespace cuda = tfhvd::cuda;

template <typename Function>
Function* Driver(const char* name) {
  static void* const library = dlopen(std::getenv("TFHVD_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

void Ok(TF_Status* status) { TF_SetStatus(status, TF_OK, ""); }

void Allocate(const SP_Device* device, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  cuda::Context context = nullptr;
  cuda::Pointer pointer = 0;
  Driver<int(cuda::Context*, int)>("cuDevicePrimaryCtxRetain")(&context, device->ordinal);
  Driver<int(cuda::Context)>("cuCtxPushCurrent_v2")(context);
  Driver<int(cuda::Pointer*, size_t)>("cuMemAlloc_v2")(&pointer, size);
  Driver<int(cuda::Context*)>("cuCtxPopCurrent_v2")(&context);
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->opaque = reinterpret_cast<void*>(static_cast<uintptr_t>(pointer));
  memory->size = size;
}
void Deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  cuda::Context context = nullptr;
  Driver<int(cuda::Context*, int)>("cuDevicePrimaryCtxRetain")(&context, device->ordinal);
  Driver<int(cuda::Context)>("cuCtxPushCurrent_v2")(context);
  Driver<int(cuda::Pointer)>("cuMemFree_v2")(reinterpret_cast<uintptr_t>(memory->opaque));
  Driver<int(cuda::Context*)>("cuCtxPopCurrent_v2")(&context);
  memory->opaque = nullptr;
  memory->size = 0;
}
// As TensorFlow aligns its tensors.
void* HostAllocate(const SP_Device*, uint64_t size) {
  return std::aligned_alloc(64, (size + 63) / 64 * 64);
}
void HostDeallocate(const SP_Device*, void* memory) { std::free(memory); }
TF_Bool MemoryUsage(const SP_Device*, int64_t* free, int64_t* total) {
  *free = *total = int64_t{64} << 20;
  return true;
}
TF_Bool NoStats(const SP_Device*, SP_AllocatorStats*) { return false; }

void CreateStream(const SP_Device*, SP_Stream* stream, TF_Status* status) {
  *stream = new SP_Stream_st();
  Ok(status);
}
void DestroyStream(const SP_Device*, SP_Stream stream) { delete stream; }
void StreamDependency(const SP_Device*, SP_Stream, SP_Stream, TF_Status* status) { Ok(status); }
void StreamStatus(const SP_Device*, SP_Stream, TF_Status* status) { Ok(status); }
void CreateEvent(const SP_Device*, SP_Event* event, TF_Status* status) {
  *event = new SP_Event_st();
  Ok(status);
}
void DestroyEvent(const SP_Device*, SP_Event event) { delete event; }
SE_EventStatus EventStatus(const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; }
void OnEvent(const SP_Device*, SP_Stream, SP_Event, TF_Status* status) { Ok(status); }
void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status* status) {
  *timer = new SP_Timer_st();
  Ok(status);
}
void DestroyTimer(const SP_Device*, SP_Timer timer) { delete timer; }
void OnTimer(const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) { Ok(status); }

// Until the work of what is tested is over.
void Wait(const SP_Device* device) { Driver<void(int)>("tfhvd_fake_synchronize")(device->ordinal); }
void Copy(const SP_Device* device, void* to, const void* from, uint64_t size, TF_Status* status) {
  Wait(device);
  std::memcpy(to, from, size);
  Ok(status);
}
void ToHost(const SP_Device* device, SP_Stream, void* to, const SP_DeviceMemoryBase* from,
            uint64_t size, TF_Status* status) {
  Copy(device, to, from->opaque, size, status);
}
void ToDevice(const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to, const void* from,
              uint64_t size, TF_Status* status) {
  Copy(device, to->opaque, from, size, status);
}
void Within(const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to,
            const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  Copy(device, to->opaque, from->opaque, size, status);
}
void SyncToHost(const SP_Device* device, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
                TF_Status* status) {
  Copy(device, to, from->opaque, size, status);
}
void SyncToDevice(const SP_Device* device, SP_DeviceMemoryBase* to, const void* from, uint64_t size,
                  TF_Status* status) {
  Copy(device, to->opaque, from, size, status);
}
void SyncWithin(const SP_Device* device, SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                uint64_t size, TF_Status* status) {
  Copy(device, to->opaque, from->opaque, size, status);
}
void BlockForEvent(const SP_Device* device, SP_Event, TF_Status* status) {
  Wait(device);
  Ok(status);
}
void BlockUntilDone(const SP_Device* device, SP_Stream, TF_Status* status) {
  Wait(device);
  Ok(status);
}
void Synchronize(const SP_Device* device, TF_Status* status) {
  Wait(device);
  Ok(status);
}
void Zero(const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to, uint64_t size,
          TF_Status* status) {
  Wait(device);
  std::memset(to->opaque, 0, size);
  Ok(status);
}
void Fill(const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to, uint8_t value, uint64_t size,
          TF_Status* status) {
  Wait(device);
  std::memset(to->opaque, value, size);
  Ok(status);
}
void Fill32(const SP_Device* device, SP_Stream, SP_DeviceMemoryBase* to, uint32_t value,
            uint64_t size, TF_Status* status) {
  Wait(device);
  for (uint64_t i = 0; i < size / 4; ++i) static_cast<uint32_t*>(to->opaque)[i] = value;
  Ok(status);
}
TF_Bool HostCallback(const SP_Device* device, SP_Stream, SE_StatusCallbackFn function,
                     void* argument) {
  Wait(device);
  TF_Status* const status = TF_NewStatus();
  function(argument, status);
  const bool ok = TF_GetCode(status) == TF_OK;
  TF_DeleteStatus(status);
  return ok;
}

void DeviceCount(const SP_Platform*, int* count, TF_Status* status) {
  const char* const text = std::getenv("TFHVD_FAKE_GPUS");
  *count = text == nullptr ? 2 : std::atoi(text);
  Ok(status);
}
void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params, TF_Status* status) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = "fake";
  params->device->device_vendor = "tests";
  Ok(status);
}
void DestroyDevice(const SP_Platform*, SP_Device*) {}
void CreateDeviceFns(const SP_Platform*, SE_CreateDeviceFnsParams* params, TF_Status* status) {
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
  Ok(status);
}
void DestroyDeviceFns(const SP_Platform*, SP_DeviceFns*) {}
uint64_t Nanoseconds(SP_Timer) { return 0; }
void CreateTimerFns(const SP_Platform*, SP_TimerFns* timer, TF_Status* status) {
  timer->nanoseconds = Nanoseconds;
  Ok(status);
}
void DestroyTimerFns(const SP_Platform*, SP_TimerFns*) {}

void CreateExecutor(const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
  SP_StreamExecutor* const e = params->stream_executor;
  e->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  e->allocate = Allocate;
  e->deallocate = Deallocate;
  e->host_memory_allocate = HostAllocate;
  e->host_memory_deallocate = HostDeallocate;
  e->unified_memory_allocate = HostAllocate;
  e->unified_memory_deallocate = HostDeallocate;
  e->get_allocator_stats = NoStats;
  e->device_memory_usage = MemoryUsage;
  e->create_stream = CreateStream;
  e->destroy_stream = DestroyStream;
  e->create_stream_dependency = StreamDependency;
  e->get_stream_status = StreamStatus;
  e->create_event = CreateEvent;
  e->destroy_event = DestroyEvent;
  e->get_event_status = EventStatus;
  e->record_event = OnEvent;
  e->wait_for_event = OnEvent;
  e->create_timer = CreateTimer;
  e->destroy_timer = DestroyTimer;
  e->start_timer = OnTimer;
  e->stop_timer = OnTimer;
  e->memcpy_dtoh = ToHost;
  e->memcpy_htod = ToDevice;
  e->memcpy_dtod = Within;
  e->sync_memcpy_dtoh = SyncToHost;
  e->sync_memcpy_htod = SyncToDevice;
  e->sync_memcpy_dtod = SyncWithin;
  e->block_host_for_event = BlockForEvent;
  e->block_host_until_done = BlockUntilDone;
  e->synchronize_all_activity = Synchronize;
  e->mem_zero = Zero;
  e->memset = Fill;
  e->memset32 = Fill32;
  e->host_callback = HostCallback;
  Ok(status);
}
void DestroyExecutor(const SP_Platform*, SP_StreamExecutor*) {}
void DestroyPlatform(SP_Platform*) {}
void DestroyPlatformFns(SP_PlatformFns*) {}

}  // namespace

extern "C" void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->major_version = SE_MAJOR;
  params->minor_version = SE_MINOR;
  params->patch_version = SE_PATCH;
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform->name = "FAKE";
  params->platform->type = "GPU";
  params->platform->use_bfc_allocator = true;
  params->platform_fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  params->platform_fns->get_device_count = DeviceCount;
  params->platform_fns->create_device = CreateDevice;
  params->platform_fns->destroy_device = DestroyDevice;
  params->platform_fns->create_device_fns = CreateDeviceFns;
  params->platform_fns->destroy_device_fns = DestroyDeviceFns;
  params->platform_fns->create_stream_executor = CreateExecutor;
  params->platform_fns->destroy_stream_executor = DestroyExecutor;
  params->platform_fns->create_timer_fns = CreateTimerFns;
  params->platform_fns->destroy_timer_fns = DestroyTimerFns;
  params->destroy_platform = DestroyPlatform;
  params->destroy_platform_fns = DestroyPlatformFns;
  Ok(status);
}
