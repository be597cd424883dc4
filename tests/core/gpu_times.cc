// Times and endurance of tensors on a GPU, for tests/gpu/run.sh. Needs no TensorFlow; the libraries
// are those of TFHVD_CUDA_LIBRARY and TFHVD_NCCL_LIBRARY.
//
//   gpu_times alone [MEGABYTES]  bandwidth of our kernel (over so much memory, 256; and over the
//                                gradients of ResNet-50), time to what NCCL is called with
//   mpirun gpu_times calls       what NCCL's calls take of the host's time, blocking and not, one
//                                after the other and in a group
//   mpirun gpu_times steps       1,000 steps of a job, then the last rank is killed in the middle
//                                of a collective; the others must hear of it
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/collectives/staged_communicator.h"
#include "cc/engine/engine.h"
#include "cc/process/process.h"
#include "tests/core/gpu_job.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

void Print(const char* what, std::vector<double> microseconds) {
  std::sort(microseconds.begin(), microseconds.end());
  const size_t n = microseconds.size();
  std::printf("%-46s median %9.1f us, p99 %9.1f us (%zu times)\n", what, microseconds[n / 2],
              microseconds[n * 99 / 100], n);
}

// `count` runs of what `ask` asks of the device, as bytes read and written a second.
template <typename Ask>
double Bandwidth(GpuRank* gpu, int64_t bytes, const Ask& ask) {
  constexpr int kRuns = 20;
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    EXPECT_OK(gpu->device.Drain());
    const auto begin = Clock::now();
    for (int i = 0; i < kRuns; ++i) ask();
    EXPECT_OK(gpu->device.Drain());
    best = std::min(best, Microseconds(begin, Clock::now()));
  }
  return 2.0 * static_cast<double>(bytes) * kRuns / best / 1e3;
}

void TimeCopies(GpuRank* gpu, int64_t megabytes) {
  const int64_t bytes = megabytes << 20;
  const GpuMemory from(&gpu->driver, gpu->context, bytes), to(&gpu->driver, gpu->context, bytes);
  CudaDevice& device = gpu->device;
  cuda::Stream stream = nullptr;
  const double plain = Bandwidth(gpu, bytes, [&] {
    EXPECT_OK(device.Copy(to.data(), from.data(), bytes));
    EXPECT_OK(device.Flush(&stream));
  });
  std::printf("%-46s %9.1f GB/s\n", "device-to-device copy by the driver", plain);
  ASSERT_OK(device.kernel());
  const int64_t part = bytes / kBatchedCopySegments;
  const auto pieces = [&](double factor, DType to_type, DType from_type) {
    const int64_t count = part / 4;  // of elements, which take 4 bytes on one of the two sides
    for (int s = 0; s < kBatchedCopySegments; ++s) {
      const int64_t at = s * part;
      device.copies()->AddScaled(to.data() + at, to_type, from.data() + at, from_type, count,
                                 factor);
    }
    EXPECT_OK(device.Flush(&stream));
  };
  const double copied =
      Bandwidth(gpu, bytes, [&] { pieces(1.0, DType::kFloat32, DType::kFloat32); });
  const double scaled =
      Bandwidth(gpu, bytes, [&] { pieces(0.5, DType::kFloat32, DType::kFloat32); });
  const double cast =
      Bandwidth(gpu, bytes * 3 / 4, [&] { pieces(0.5, DType::kFloat16, DType::kFloat32); });
  std::printf("%-46s %9.1f GB/s, %3.0f%% of the driver's\n", "our kernel, 128 pieces copied",
              copied, 100 * copied / plain);
  std::printf("%-46s %9.1f GB/s, %3.0f%%\n", "our kernel, 128 pieces scaled", scaled,
              100 * scaled / plain);
  std::printf("%-46s %9.1f GB/s, %3.0f%%\n", "our kernel, 128 pieces scaled and cast", cast,
              100 * cast / plain);
}

// How many elements the gradients of Keras' ResNet-50 have, in the order of its layers.
std::vector<int64_t> ResNet50() {
  std::vector<int64_t> counts;
  const auto convolution = [&](int64_t side, int64_t in, int64_t out) {
    counts.push_back(side * side * in * out);
    counts.insert(counts.end(), 3, out);  // its bias, and two of the normalization
  };
  convolution(7, 3, 64);
  int64_t in = 64;
  int64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      if (block == 0) convolution(1, in, 4 * width);
      convolution(1, in, width);
      convolution(3, width, width);
      convolution(1, width, 4 * width);
      in = 4 * width;
    }
    width *= 2;
  }
  counts.push_back(in * 1000);
  counts.push_back(1000);
  return counts;
}

// The gradients of a model on their way into the buffer that they travel in.
void TimeGradients(GpuRank* gpu) {
  const std::vector<int64_t> counts = ResNet50();
  std::vector<std::unique_ptr<GpuMemory>> tensors;
  int64_t bytes = 0;
  for (const int64_t count : counts) {
    tensors.push_back(std::make_unique<GpuMemory>(&gpu->driver, gpu->context, count * 4));
    bytes += count * 4;
  }
  const GpuMemory buffer(&gpu->driver, gpu->context, bytes);
  CudaDevice& device = gpu->device;
  cuda::Stream stream = nullptr;
  const auto pack = [&](double factor, DType type, bool one_by_one) {
    int64_t at = 0;
    for (size_t t = 0; t < counts.size(); ++t) {
      device.copies()->AddScaled(buffer.data() + at, type, tensors[t]->data(), DType::kFloat32,
                                 counts[t], factor);
      at += counts[t] * ItemSize(type);
      if (one_by_one) EXPECT_OK(device.Flush(&stream));
    }
    EXPECT_OK(device.Flush(&stream));
  };
  const auto print = [&](const char* what, int64_t moved, const std::function<void()>& ask) {
    std::printf("ResNet-50, %zu tensors: %-22s %9.1f GB/s\n", counts.size(), what,
                Bandwidth(gpu, moved, ask));
  };
  print("by the driver, singly", bytes, [&] { pack(1.0, DType::kFloat32, true); });
  ASSERT_OK(device.kernel());
  print("copied", bytes, [&] { pack(1.0, DType::kFloat32, false); });
  print("scaled", bytes, [&] { pack(0.5, DType::kFloat32, false); });
  print("scaled and cast", bytes * 3 / 4, [&] { pack(0.5, DType::kFloat16, false); });
}

// Notes when an allreduce has been given to NCCL.
class Noting : public Communicator {
 public:
  Noting(std::unique_ptr<Communicator> comm, std::atomic<Clock::rep>* launched)
      : comm_(std::move(comm)), launched_(*launched) {}

  const char* name() const override { return comm_->name(); }
  int rank() const override { return comm_->rank(); }
  int size() const override { return comm_->size(); }
  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override {
    const Status status = comm_->AllReduce(in, out, count, dtype, reduction);
    launched_.store(Clock::now().time_since_epoch().count());
    return status;
  }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    return comm_->AllGather(in, out, bytes);
  }
  Status Broadcast(void* buffer, int64_t bytes, int root) override {
    return comm_->Broadcast(buffer, bytes, root);
  }
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override {
    return comm_->ReduceScatter(in, out, counts, dtype, reduction);
  }
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override {
    return comm_->AllToAll(in, send_bytes, out, recv_bytes);
  }
  Status Barrier() override { return comm_->Barrier(); }
  Status Poll() override { return comm_->Poll(); }
  void Abort(const Status& why) override { comm_->Abort(why); }

 private:
  const std::unique_ptr<Communicator> comm_;
  std::atomic<Clock::rep>& launched_;
};

class NotingBackend : public Backend {
 public:
  NotingBackend(const NcclApi& api, CudaDevice* device, std::atomic<Clock::rep>* launched)
      : api_(api), device_(*device), launched_(*launched) {}
  const char* name() const override { return "nccl"; }
  Status Open(Communicator* host, std::unique_ptr<Communicator>* out) override {
    std::unique_ptr<Communicator> comm;
    TFHVD_RETURN_IF_ERROR(NcclCommunicator::Make(
        api_, &device_, host, MakeStagedCommunicator(&device_, host), {}, &comm));
    *out = std::make_unique<Noting>(std::move(comm), &launched_);
    return Status::Ok();
  }

 private:
  const NcclApi api_;
  CudaDevice& device_;  // Not owned.
  std::atomic<Clock::rep>& launched_;
};

// From the ready event, which Submit records, until NCCL's call has returned: for one rank NCCL has
// nothing to launch, so that this is our time alone.
void TimeLaunch(GpuRank* gpu, const NcclApi& api) {
  const std::unique_ptr<World> world = MakeSoloWorld();
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> host;
  ASSERT_OK(world->OpenControlPlane(&control));
  ASSERT_OK(world->OpenCommunicator({0}, &host));
  std::atomic<Clock::rep> launched{0};
  auto device = std::make_unique<CudaDevice>(gpu->driver);
  auto backend = std::make_unique<NotingBackend>(api, device.get(), &launched);
  Engine engine(Config(), Log(LogLevel::kWarning, 0), MakeTopology(0, {"host"}), std::move(control),
                std::move(host), Accelerator{std::move(device), std::move(backend)});
  const GpuMemory memory(&gpu->driver, gpu->context, 4096);
  std::vector<double> times;
  for (int i = 0; i < 1100; ++i) {
    std::atomic<bool> done{false};
    const auto begin = Clock::now();
    engine.Submit(SumOf("t", memory.data(), 1024, gpu->stream, [&](const Status& status) {
      EXPECT_OK(status);
      done.store(true);
    }));
    while (!done.load()) std::this_thread::yield();
    if (i < 100) continue;
    const Clock::time_point end{Clock::duration(launched.load())};
    times.push_back(Microseconds(begin, end));
  }
  Print("from the ready event to the call of NCCL", times);
}

void TimeAlone(const Config& config, int64_t megabytes) {
  CudaDriver driver;
  NcclApi api;
  ASSERT_OK(LoadCudaDriver(config.cuda_library, &driver));
  ASSERT_OK(LoadNccl(config.nccl_library, "", &api));
  GpuRank gpu(driver, 0);
  TimeCopies(&gpu, megabytes);
  TimeGradients(&gpu);
  TimeLaunch(&gpu, api);
}

// NCCL's calls as they are, without an engine.
class Calls {
 public:
  Calls(const NcclApi& api, GpuRank* gpu, Communicator* host, int blocking)
      : api_(api), gpu_(*gpu), memory_(&gpu->driver, gpu->context, kBytes * kCalls) {
    nccl::UniqueId id = {};
    if (host->rank() == 0) EXPECT_EQ(api.ncclGetUniqueId(&id), nccl::kSuccess);
    EXPECT_OK(host->Broadcast(&id, sizeof id, 0));
    nccl::Config config;
    config.blocking = blocking;
    const CudaScope scope(gpu_.driver, gpu_.context);
    Settle(api.ncclCommInitRankConfig(&comm_, host->size(), id, host->rank(), &config));
  }
  ~Calls() {
    const CudaScope scope(gpu_.driver, gpu_.context);
    api_.ncclCommAbort(comm_);
  }

  // Microseconds of the host for some allreduces, one after the other or as a group.
  double Once(bool group) {
    const CudaScope scope(gpu_.driver, gpu_.context);
    const auto begin = Clock::now();
    if (group) EXPECT_EQ(api_.ncclGroupStart(), nccl::kSuccess);
    for (int i = 0; i < kCalls; ++i) {
      char* const at = memory_.data() + i * kBytes;
      const nccl::Result result =
          api_.ncclAllReduce(at, at, kBytes / 4, nccl::kFloat32, nccl::kSum, comm_, gpu_.stream);
      if (!group) Settle(result);
    }
    if (group) Settle(api_.ncclGroupEnd());
    const double spent = Microseconds(begin, Clock::now());
    // Kernels that are queued up would each take their time to notice the end of the communicator.
    EXPECT_OK(gpu_.device.AwaitStream(gpu_.stream));
    EXPECT_OK(gpu_.device.Drain());
    return spent;
  }

  static constexpr int kCalls = 8;

 private:
  static constexpr int64_t kBytes = 64 << 10;

  void Settle(nccl::Result result) {
    while (result == nccl::kInProgress) {
      EXPECT_EQ(api_.ncclCommGetAsyncError(comm_, &result), nccl::kSuccess);
    }
    EXPECT_EQ(result, nccl::kSuccess);
  }

  const NcclApi api_;
  GpuRank& gpu_;  // Not owned.
  const GpuMemory memory_;
  nccl::Comm comm_ = nullptr;
};

void TimeCalls() {
  GpuJob job;
  ASSERT_OK(job.Open());
  {
    GpuRank gpu(job.driver, job.gpu());
    for (const int blocking : {1, 0}) {
      Calls calls(job.api, &gpu, job.host.get(), blocking);
      for (const bool group : {false, true}) {
        std::vector<double> times;
        for (int i = 0; i < 60; ++i) {
          const double spent = calls.Once(group);
          if (i >= 10) times.push_back(spent);
        }
        const std::string what = std::to_string(Calls::kCalls) + " allreduces " +
                                 (group ? "in a group" : "singly") +
                                 (blocking == 1 ? ", blocking" : ", not blocking");
        if (job.world->rank() == 0) Print(what.c_str(), times);
        ASSERT_OK(job.host->Barrier());
      }
    }
  }
  job.Close();
}

// One step: tensors that travel together and one that goes alone, and the sums are right.
Status Step(Engine* engine, GpuRank* gpu, const std::vector<std::unique_ptr<GpuMemory>>& memory,
            int number) {
  constexpr int64_t kCounts[] = {1, 1000, 30000, 1 << 18};
  const int rank = engine->topology().rank;
  const int size = engine->topology().size;
  Status failed;
  std::atomic<size_t> left{memory.size()};
  for (size_t t = 0; t < memory.size(); ++t) {
    const std::vector<float> values(static_cast<size_t>(kCounts[t]),
                                    static_cast<float>(number % 100 + rank));
    const CudaScope scope(gpu->driver, gpu->context);
    EXPECT_EQ(
        gpu->driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<uintptr_t>(memory[t]->data()),
                                         values.data(), values.size() * sizeof(float), gpu->stream),
        cuda::kSuccess);
    engine->Submit(SumOf("t" + std::to_string(t), memory[t]->data(), kCounts[t], gpu->stream,
                         [&](const Status& status) {  // on the engine's thread, or this one
                           if (!status.ok()) failed = status;
                           left.fetch_sub(1);
                         }));
  }
  while (left.load() > 0) std::this_thread::yield();
  TFHVD_RETURN_IF_ERROR(failed);
  const float sum = static_cast<float>(size * (number % 100) + size * (size - 1) / 2);
  for (size_t t = 0; t < memory.size(); ++t) {
    float first = 0.0f;
    TFHVD_RETURN_IF_ERROR(gpu->device.AwaitStream(gpu->stream));
    TFHVD_RETURN_IF_ERROR(gpu->device.CopyToHost(&first, memory[t]->data(), sizeof first));
    EXPECT_EQ(first, sum);
  }
  return Status::Ok();
}

constexpr int64_t kLarge = int64_t{16} << 20;  // floats
constexpr std::chrono::milliseconds kUntilKilled{300};

Status LargeStep(Engine* engine, GpuRank* gpu, char* memory) {
  Status result;
  std::atomic<bool> done{false};
  engine->Submit(SumOf("large", memory, kLarge, gpu->stream, [&](const Status& status) {
    result = status;
    done.store(true);
  }));
  while (!done.load()) std::this_thread::yield();
  if (result.ok()) result = gpu->device.AwaitStream(gpu->stream);
  if (result.ok()) result = gpu->device.Drain();  // as a program that looks at its loss
  return result;
}

int RunSteps(const Config& config) {
  EXPECT_OK(InitProcess(""));
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return 1;
  const Topology& topology = engine->topology();
  CudaDriver driver;
  int gpus = 0;
  EXPECT_OK(LoadCudaDriver(config.cuda_library, &driver));
  EXPECT_EQ(driver.cuDeviceGetCount(&gpus), cuda::kSuccess);
  GpuRank gpu(driver, topology.local_rank % std::max(1, gpus));
  std::vector<std::unique_ptr<GpuMemory>> memory;
  for (int t = 0; t < 4; ++t) {
    memory.push_back(std::make_unique<GpuMemory>(&driver, gpu.context, int64_t{4} << 18));
  }
  const auto began = Clock::now();
  int number = 0;
  for (; number < 1000; ++number) {
    const Status status = Step(engine.get(), &gpu, memory, number);
    EXPECT_OK(status);
    if (!status.ok()) std::_Exit(1);
  }
  if (topology.rank == 0) {
    std::printf("1000 steps of 4 tensors on %d ranks, sums checked: %.0f us a step\n",
                topology.size, Microseconds(began, Clock::now()) / number);
  }
  if (topology.size == 1) return Registry::Get().failures() == 0 ? 0 : 1;
  // The others have checked every step by when they begin one more. The last rank is killed while
  // NCCL's kernels of a large tensor run, which wait for it on the GPU.
  memory.clear();
  memory.push_back(std::make_unique<GpuMemory>(&driver, gpu.context, kLarge * 4));
  std::thread killer;
  if (topology.rank == topology.size - 1) {
    killer = std::thread([] {
      std::this_thread::sleep_for(kUntilKilled);
      raise(SIGKILL);
    });
  }
  const auto lost = Clock::now() + kUntilKilled;
  Status status;
  for (; status.ok(); ++number) status = LargeStep(engine.get(), &gpu, memory[0]->data());
  EXPECT_ERROR(status, StatusCode::kAborted, "rank " + std::to_string(topology.size - 1));
  std::printf("rank %d heard after %.2f s that the last was killed: %s\n", topology.rank,
              Microseconds(lost, Clock::now()) / 1e6, status.message().c_str());
  std::fflush(stdout);
  // The job is broken: nothing of it is left to be closed in order.
  std::_Exit(Registry::Get().failures() == 0 ? 0 : 1);
}

// The launcher sees this process, which outlives the one that is killed: else it would end the job,
// and nothing would be shown of what tfhvd does.
int Outlive(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  return WTERMSIG(status) == SIGKILL ? 0 : 1;
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "alone";
  if (mode == "steps") {
    const pid_t child = fork();
    if (child > 0) return Outlive(child);
  }
  Config config;
  std::vector<std::string> warnings;
  EXPECT_OK(ReadConfig(&config, &warnings));
  if (mode == "steps") return RunSteps(config);
  if (mode == "calls") {
    TimeCalls();
  } else {
    TimeAlone(config, argc > 2 ? std::atoi(argv[2]) : 256);
  }
  return Registry::Get().failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) { return tfhvd::testing::Main(argc, argv); }
