// The driver's side of the fake: see fake_cuda.h. As with the driver, a thread needs a context
// for all that concerns streams, events and memory.
#include "tests/gpu/fakes/fake_cuda.h"

#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cc/numeric/half.h"
#include "tests/gpu/fakes/fake_kernel.h"

namespace cuda = tfhvd::cuda;

// Work in order, on a thread that ends with the stream.
struct CUstream_st {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool closed = false;
  int delay_ms = 0;
  cuda::Context context = nullptr;

  void Put(std::function<void()> piece) {
    const std::lock_guard<std::mutex> lock(mutex);
    work.push_back(std::move(piece));
    changed.notify_one();
  }
  void Run() {
    while (true) {
      std::function<void()> piece;
      {
        std::unique_lock<std::mutex> lock(mutex);
        while (work.empty() && !closed) changed.wait(lock);
        if (work.empty()) return;
        piece = std::move(work.front());
        work.pop_front();
      }
      if (delay_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
      piece();
    }
  }
};

struct CUctx_st {
  int ordinal = 0;
  std::once_flag started;
  CUstream_st null_stream;

  CUstream_st* NullStream() {
    std::call_once(started, [this] { std::thread([this] { null_stream.Run(); }).detach(); });
    return &null_stream;
  }
};

namespace fake {
namespace {

// How often an event was recorded, and how far its streams have come.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  unsigned long long recorded = 0;
  unsigned long long done = 0;
};

}  // namespace
}  // namespace fake

struct CUevent_st {
  std::shared_ptr<fake::EventState> state = std::make_shared<fake::EventState>();
};

namespace fake {
namespace {

struct Machine {
  std::mutex mutex;
  std::map<std::string, int> settings;
  std::map<cuda::Pointer, std::pair<size_t, int>> memory;  // begin -> bytes, ordinal
  CUctx_st contexts[16];
};

Machine& TheMachine() {
  static Machine* const machine = [] {
    auto* m = new Machine();
    for (int i = 0; i < 16; ++i) m->contexts[i].ordinal = i;
    return m;
  }();
  return *machine;
}

thread_local std::vector<cuda::Context> contexts;

int GpuCount() { return Setting("GPUS"); }

bool HasContext() { return !contexts.empty(); }

}  // namespace

int Setting(const std::string& name) {
  Machine& m = TheMachine();
  const std::lock_guard<std::mutex> lock(m.mutex);
  const auto found = m.settings.find(name);
  if (found != m.settings.end()) return found->second;
  const char* const text = std::getenv(("TFHVD_FAKE_" + name).c_str());
  if (text != nullptr) return std::atoi(text);
  return name == "GPUS" ? 2 : name == "NCCL_VERSION" ? 22707 : 0;
}

// The functions of the interface do not call each other: TensorFlow has some of the same names.
void CopyLater(void* to, const void* from, size_t bytes, cuda::Stream stream) {
  Enqueue(stream, [to, from, bytes] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}

void Enqueue(cuda::Stream stream, std::function<void()> work) {
  if (stream == nullptr) stream = contexts.back()->NullStream();
  stream->Put(std::move(work));
}

}  // namespace fake

using fake::TheMachine;

extern "C" {

void tfhvd_fake_set(const char* name, int value) {
  const std::lock_guard<std::mutex> lock(TheMachine().mutex);
  TheMachine().settings[name] = value;
}

// Returns when the NULL stream of a GPU has done all that it was asked for.
void tfhvd_fake_synchronize(int ordinal) {
  fake::EventState state;
  TheMachine().contexts[ordinal].NullStream()->Put([&state] {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.done = 1;
    state.changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(state.mutex);
  while (state.done == 0) state.changed.wait(lock);
}

int cuInit(unsigned) { return fake::GpuCount() > 0 ? cuda::kSuccess : cuda::kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 12050;
  return cuda::kSuccess;
}
int cuGetErrorName(int result, const char** name) {
  static const std::map<int, const char*> kNames = {
      {cuda::kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {cuda::kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {cuda::kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {cuda::kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {cuda::kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {cuda::kNotReady, "CUDA_ERROR_NOT_READY"}};
  const auto found = kNames.find(result);
  *name = found == kNames.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return cuda::kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "an error of the fake";
  return cuda::kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = fake::GpuCount();
  return cuda::kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= fake::GpuCount()) return cuda::kInvalidValue;
  *device = ordinal;
  return cuda::kSuccess;
}
int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "fake");
  return cuda::kSuccess;
}
int cuDeviceGetUuid_v2(cuda::Uuid* uuid, int device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(device + 1);
  return cuda::kSuccess;
}
int cuDevicePrimaryCtxRetain(cuda::Context* context, int device) {
  *context = &TheMachine().contexts[device];
  return cuda::kSuccess;
}
int cuCtxPushCurrent_v2(cuda::Context context) {
  fake::contexts.push_back(context);
  return cuda::kSuccess;
}
int cuCtxPopCurrent_v2(cuda::Context* context) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  *context = fake::contexts.back();
  fake::contexts.pop_back();
  return cuda::kSuccess;
}
int cuCtxGetDevice(int* device) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  *device = fake::contexts.back()->ordinal;
  return cuda::kSuccess;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return fake::HasContext() ? cuda::kSuccess : cuda::kInvalidContext;
}
int cuStreamCreateWithPriority(cuda::Stream* stream, unsigned, int priority) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  *stream = new CUstream_st();
  (*stream)->context = fake::contexts.back();
  if (priority == 0) (*stream)->delay_ms = fake::Setting("DELAY_MS");
  // Deleted by its thread, which may still have work when the stream is given up.
  std::thread([s = *stream] {
    s->Run();
    delete s;
  }).detach();
  return cuda::kSuccess;
}
int cuStreamDestroy_v2(cuda::Stream stream) {
  const std::lock_guard<std::mutex> lock(stream->mutex);
  stream->closed = true;
  stream->changed.notify_one();
  return cuda::kSuccess;
}
int cuStreamGetCtx(cuda::Stream stream, cuda::Context* context) {
  if (stream == nullptr && !fake::HasContext()) return cuda::kInvalidContext;
  *context = stream == nullptr ? fake::contexts.back() : stream->context;
  return cuda::kSuccess;
}
int cuLaunchHostFunc(cuda::Stream stream, void (*function)(void*), void* argument) {
  if (stream == nullptr && !fake::HasContext()) return cuda::kInvalidContext;
  fake::Enqueue(stream, [function, argument] { function(argument); });
  return cuda::kSuccess;
}

int cuEventCreate(cuda::Event* event, unsigned) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  *event = new CUevent_st();
  return cuda::kSuccess;
}
int cuEventDestroy_v2(cuda::Event event) {
  delete event;
  return cuda::kSuccess;
}
int cuEventRecord(cuda::Event event, cuda::Stream stream) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  const std::shared_ptr<fake::EventState> state = event->state;
  unsigned long long number = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    number = ++state->recorded;
  }
  fake::Enqueue(stream, [state, number] {
    const std::lock_guard<std::mutex> lock(state->mutex);
    if (state->done < number) state->done = number;
    state->changed.notify_all();
  });
  return cuda::kSuccess;
}
int cuEventQuery(cuda::Event event) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  const std::lock_guard<std::mutex> lock(event->state->mutex);
  return event->state->done >= event->state->recorded ? cuda::kSuccess : cuda::kNotReady;
}
// Waits for what is recorded now, whatever the event is used for later.
int cuStreamWaitEvent(cuda::Stream stream, cuda::Event event, unsigned) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  const std::shared_ptr<fake::EventState> state = event->state;
  unsigned long long number = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    number = state->recorded;
  }
  fake::Enqueue(stream, [state, number] {
    std::unique_lock<std::mutex> lock(state->mutex);
    while (state->done < number) state->changed.wait(lock);
  });
  return cuda::kSuccess;
}

int cuMemAlloc_v2(cuda::Pointer* pointer, size_t bytes) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  if (bytes == 0) return cuda::kInvalidValue;
  if (bytes > (size_t{1} << 38)) return cuda::kOutOfMemory;
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (memory == nullptr) return cuda::kOutOfMemory;
  *pointer = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard<std::mutex> lock(TheMachine().mutex);
  TheMachine().memory[*pointer] = {bytes, fake::contexts.back()->ordinal};
  return cuda::kSuccess;
}
int cuMemFree_v2(cuda::Pointer pointer) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  {
    const std::lock_guard<std::mutex> lock(TheMachine().mutex);
    if (TheMachine().memory.erase(pointer) == 0) return cuda::kInvalidValue;
  }
  std::free(reinterpret_cast<void*>(static_cast<uintptr_t>(pointer)));
  return cuda::kSuccess;
}
int cuPointerGetAttribute(void* value, int attribute, cuda::Pointer pointer) {
  if (attribute != cuda::kPointerDeviceOrdinal) return cuda::kInvalidValue;
  const std::lock_guard<std::mutex> lock(TheMachine().mutex);
  auto after = TheMachine().memory.upper_bound(pointer);
  if (after == TheMachine().memory.begin()) return cuda::kInvalidValue;
  const auto& [begin, block] = *--after;
  if (pointer >= begin + block.first) return cuda::kInvalidValue;
  *static_cast<int*>(value) = block.second;
  return cuda::kSuccess;
}

int cuMemsetD8Async(cuda::Pointer to, unsigned char value, size_t bytes, cuda::Stream stream) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  fake::Enqueue(stream,
                [to, value, bytes] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return cuda::kSuccess;
}
int cuMemcpyDtoDAsync_v2(cuda::Pointer to, cuda::Pointer from, size_t bytes, cuda::Stream stream) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  fake::CopyLater(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, stream);
  return cuda::kSuccess;
}
int cuMemcpyDtoHAsync_v2(void* to, cuda::Pointer from, size_t bytes, cuda::Stream stream) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  fake::CopyLater(to, reinterpret_cast<void*>(from), bytes, stream);
  return cuda::kSuccess;
}
// From pageable memory the driver has read when it returns.
int cuMemcpyHtoDAsync_v2(cuda::Pointer to, const void* from, size_t bytes, cuda::Stream stream) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  const char* const begin = static_cast<const char*>(from);
  auto read = std::make_shared<std::vector<char>>(begin, begin + bytes);
  fake::Enqueue(
      stream, [to, read] { std::memcpy(reinterpret_cast<void*>(to), read->data(), read->size()); });
  return cuda::kSuccess;
}

int cuModuleLoadData(cuda::Module* module, const void* image) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  if (fake::Setting("NO_KERNELS") != 0) return cuda::kNoBinaryForGpu;
  if (std::strstr(static_cast<const char*>(image), "tfhvd_batched_copy") == nullptr) {
    return cuda::kInvalidValue;
  }
  *module = reinterpret_cast<cuda::Module>(&TheMachine());
  return cuda::kSuccess;
}
int cuModuleUnload(cuda::Module) { return cuda::kSuccess; }
int cuModuleGetFunction(cuda::Function* function, cuda::Module, const char* name) {
  if (std::strcmp(name, "tfhvd_batched_copy") != 0) return cuda::kNotFound;
  *function = reinterpret_cast<cuda::Function>(&TheMachine());
  return cuda::kSuccess;
}
int cuLaunchKernel(cuda::Function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, cuda::Stream stream, void** parameters, void**) {
  if (!fake::HasContext()) return cuda::kInvalidContext;
  const auto args = *static_cast<const tfhvd::BatchedCopyArgs*>(parameters[0]);
  fake::Enqueue(stream, [args, blocks, threads] { fake::RunBatchedCopy(args, blocks, threads); });
  return cuda::kSuccess;
}

}  // extern "C"
