// A rank with a GPU, for tests: the device, a stream as a framework has one, and a communicator on
// the GPU as one on host buffers, so that the suite of all communicators runs on it. Only what the
// driver API has, so that it runs on a GPU as on the fake (tests/gpu/fakes).
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/nccl/nccl_api.h"
#include "cc/base/backoff.h"
#include "cc/comm/communicator.h"
#include "cc/device/cuda_device.h"
#include "cc/flow/entry.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

// The fake's library, which is built beside the program.
inline std::string FakeGpuLibrary() {
  char path[4096] = {0};
  if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return "";
  const std::string program = path;
  return program.substr(0, program.rfind('/')) + "/libtfhvd_fake_gpu.so";
}

// A setting of the fake for as long as this object lives: see fake_cuda.h.
class FakeSetting {
 public:
  FakeSetting(const char* name, int value, int afterwards = 0)
      : name_(name), afterwards_(afterwards) {
    Set(name_, value);
  }
  ~FakeSetting() { Set(name_, afterwards_); }

 private:
  static void Set(const char* name, int value) {
    void* const library = dlopen(FakeGpuLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library != nullptr);
    reinterpret_cast<void (*)(const char*, int)>(dlsym(library, "tfhvd_fake_set"))(name, value);
  }
  const char* const name_;
  const int afterwards_;
};

// Memory of a GPU, freed with this object.
class GpuMemory {
 public:
  GpuMemory(const CudaDriver* driver, cuda::Context context, int64_t bytes)
      : driver_(*driver), context_(context) {
    const CudaScope scope(driver_, context_);
    EXPECT_EQ(driver_.cuMemAlloc_v2(&pointer_, static_cast<size_t>(bytes)), cuda::kSuccess);
  }
  ~GpuMemory() {
    const CudaScope scope(driver_, context_);
    if (pointer_ != 0) driver_.cuMemFree_v2(pointer_);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  char* data() const { return reinterpret_cast<char*>(static_cast<uintptr_t>(pointer_)); }

 private:
  const CudaDriver& driver_;
  const cuda::Context context_;
  cuda::Pointer pointer_ = 0;
};

// One rank's GPU.
class GpuRank {
 public:
  GpuRank(const CudaDriver& the_driver, int ordinal) : driver(the_driver), device(driver, ordinal) {
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, ordinal), cuda::kSuccess);
    const CudaScope scope(driver, context);
    EXPECT_EQ(driver.cuStreamCreateWithPriority(&stream, cuda::kStreamNonBlocking, 0),
              cuda::kSuccess);
    const GpuMemory first(&driver, context, 64);
    std::shared_ptr<void> mark;
    EXPECT_OK(device.Mark(stream, first.data(), &mark));
  }
  ~GpuRank() {
    const CudaScope scope(driver, context);
    driver.cuStreamDestroy_v2(stream);
  }

  const CudaDriver driver;
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;  // the framework's
  CudaDevice device;
};

// The stream does nothing more until `release` is set. `driver`: the file of the fake.
inline void HoldUntil(std::atomic<bool>* release, cuda::Stream stream, const std::string& driver) {
  void* const library = dlopen(driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library != nullptr);
  const auto launch = reinterpret_cast<int (*)(cuda::Stream, void (*)(void*), void*)>(
      dlsym(library, "cuLaunchHostFunc"));
  const auto hold = [](void* held) {
    while (!static_cast<std::atomic<bool>*>(held)->load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  EXPECT_EQ(launch(stream, hold, release), 0);
}

// A sum of floats, in place, in order with the framework's stream.
inline Entry SumOf(const std::string& name, char* memory, int64_t count, cuda::Stream stream,
                   std::function<void(const Status&)> done) {
  Entry entry;
  entry.request.Edit()->key.name = name;
  entry.request.Edit()->device = DeviceKind::kGpu;
  entry.request.Edit()->reduction.op = ReduceOp::kSum;
  entry.request.Edit()->tensors.push_back({DType::kFloat32, {count}});
  entry.inputs.push_back(memory);
  entry.outputs.push_back(memory);
  entry.EditExtras()->stream = stream;
  entry.done = std::move(done);
  return entry;
}

// Copies host buffers to the GPU, calls, waits, and copies back.
class ByWayOfTheGpu : public Communicator {
 public:
  ByWayOfTheGpu(GpuRank* gpu, Communicator* comm) : gpu_(*gpu), comm_(*comm) {}

  const char* name() const override { return "gpu"; }
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override {
    const int64_t bytes = count * ItemSize(dtype);
    return Call(in, bytes, out, bytes, [&](const char* from, char* to) {
      return comm_.AllReduce(from, to, count, dtype, reduction);
    });
  }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    return Call(in, bytes[static_cast<size_t>(rank())], out, Sum(bytes),
                [&](const char* from, char* to) { return comm_.AllGather(from, to, bytes); });
  }
  Status Broadcast(void* buffer, int64_t bytes, int root) override {
    return Call(buffer, bytes, buffer, bytes,
                [&](const char*, char* to) { return comm_.Broadcast(to, bytes, root); });
  }
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override {
    const int64_t item = ItemSize(dtype);
    const int64_t mine = counts[static_cast<size_t>(rank())] * item;
    return Call(in, Sum(counts) * item, out, mine, [&](const char* from, char* to) {
      return comm_.ReduceScatter(from, to, counts, dtype, reduction);
    });
  }
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override {
    return Call(in, Sum(send_bytes), out, Sum(recv_bytes), [&](const char* from, char* to) {
      return comm_.AllToAll(from, send_bytes, to, recv_bytes);
    });
  }
  Status Barrier() override { return comm_.Barrier(); }
  void Abort(const Status& why) override { comm_.Abort(why); }

 private:
  static constexpr int64_t kGuard = 64;

  static int64_t Sum(const std::vector<int64_t>& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  }

  template <typename Function>
  Status Call(const void* in, int64_t in_bytes, void* out, int64_t out_bytes,
              const Function& function) {
    Device& device = gpu_.device;
    const bool in_place = in == out;
    const GpuMemory to(&gpu_.driver, gpu_.context, out_bytes + kGuard);
    const GpuMemory own(&gpu_.driver, gpu_.context, in_bytes + kGuard);
    char* const from = in_place ? to.data() : own.data();
    const std::string guard(kGuard, 'g');
    TFHVD_RETURN_IF_ERROR(device.CopyFromHost(to.data() + out_bytes, guard.data(), kGuard));
    TFHVD_RETURN_IF_ERROR(device.CopyFromHost(from, in, in_bytes));
    TFHVD_RETURN_IF_ERROR(Wait(function(from, to.data())));
    std::string after(kGuard, '\0');
    TFHVD_RETURN_IF_ERROR(device.CopyToHost(after.data(), to.data() + out_bytes, kGuard));
    EXPECT_EQ(after, guard);
    // What the call may have done to its input is seen as well.
    if (!in_place) {
      TFHVD_RETURN_IF_ERROR(device.CopyToHost(const_cast<void*>(in), from, in_bytes));
    }
    return device.CopyToHost(out, to.data(), out_bytes);
  }

  // As the engine does: polls, and ends what has failed before anybody frees its memory.
  Status Wait(Status status) {
    for (Backoff backoff; status.ok() && gpu_.device.busy(); backoff.Pause()) {
      status = comm_.Poll();
    }
    if (status.ok()) status = comm_.Poll();
    if (status.ok()) return status;
    comm_.Abort(status);
    EXPECT_OK(gpu_.device.Drain());
    return status;
  }

  GpuRank& gpu_;
  Communicator& comm_;
};

}  // namespace testing
}  // namespace tfhvd
