// Times and endurance of tensors on a GPU, for tests/gpu/run.sh. Needs no TensorFlow; the libraries
// are those of TFHVD_CUDA_LIBRARY and TFHVD_NCCL_LIBRARY.
//
//   gpu_times alone [MEGABYTES]  latency, bandwidth of our kernel (over so much memory, 256), time
//                                to NCCL's launch
//   mpirun gpu_times steps       1,000 steps of a job, at whose end the last rank is killed; the
//                                others must hear of it
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/backends/staged/staged_communicator.h"
#include "cc/engine/engine.h"
#include "cc/process/process.h"
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

// The allreduce of small and large tensors, from the call until the result is on the GPU.
void TimeAllReduce(GpuRank* gpu, Communicator* comm) {
  for (const int64_t bytes : {4LL, 64LL << 10, 16LL << 20}) {
    const GpuMemory memory(&gpu->driver, gpu->context, bytes);
    std::vector<double> times;
    for (int i = 0; i < 210; ++i) {
      const auto begin = Clock::now();
      ASSERT_OK(comm->AllReduce(memory.data(), memory.data(), bytes / 4, DType::kFloat32,
                                {ReduceOp::kSum, 1.0, 1.0}));
      while (gpu->device.busy()) {
      }
      if (i >= 10) times.push_back(Microseconds(begin, Clock::now()));
    }
    Print(("allreduce of " + std::to_string(bytes) + " bytes").c_str(), times);
  }
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
  if (!device.copies()->has_kernel()) return;
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

// From the ready event, which Submit records, until NCCL's launch has returned.
void TimeLaunch(GpuRank* gpu, const NcclApi& api) {
  const std::unique_ptr<World> world = MakeSoloWorld();
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> host;
  ASSERT_OK(world->OpenControlPlane(&control));
  ASSERT_OK(world->OpenCommunicator({0}, &host));
  std::atomic<Clock::rep> launched{0};
  auto device = std::make_unique<CudaDevice>(gpu->driver, Log(LogLevel::kWarning, 0));
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
  Print("from the ready event to NCCL's launch", times);
}

void TimeAlone(const Config& config, int64_t megabytes) {
  CudaDriver driver;
  NcclApi api;
  ASSERT_OK(LoadCudaDriver(config.cuda_library, &driver));
  ASSERT_OK(LoadNccl(config.nccl_library, "", &api));
  GpuRank gpu(driver, 0);
  const std::unique_ptr<World> world = MakeSoloWorld();
  std::unique_ptr<Communicator> host;
  ASSERT_OK(world->OpenCommunicator({0}, &host));
  std::unique_ptr<Communicator> comm;
  ASSERT_OK(NcclCommunicator::Make(api, &gpu.device, host.get(),
                                   MakeStagedCommunicator(&gpu.device, host.get()), {}, &comm));
  TimeAllReduce(&gpu, comm.get());
  TimeCopies(&gpu, megabytes);
  TimeLaunch(&gpu, api);
}

// One step: tensors that travel together and one that goes alone. `complete`: no rank is lost in
// it, so that the sums must be right.
Status Step(Engine* engine, GpuRank* gpu, const std::vector<std::unique_ptr<GpuMemory>>& memory,
            int number, bool complete) {
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
    if (complete) EXPECT_EQ(first, sum);
  }
  return Status::Ok();
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
    const Status status = Step(engine.get(), &gpu, memory, number, true);
    EXPECT_OK(status);
    if (!status.ok()) std::_Exit(1);
  }
  if (topology.rank == 0) {
    std::printf("1000 steps of 4 tensors on %d ranks, sums checked: %.0f us a step\n",
                topology.size, Microseconds(began, Clock::now()) / number);
  }
  // The others have checked every step by when they begin one more: only then is the last killed.
  Status status = topology.size > 1 ? Status::Ok() : Status::Aborted("rank 0");
  auto lost = Clock::now();
  for (; status.ok(); ++number) {
    lost = Clock::now();
    status = Step(engine.get(), &gpu, memory, number, false);
    if (topology.rank == topology.size - 1) raise(SIGKILL);
  }
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
  TimeAlone(config, argc > 2 ? std::atoi(argv[2]) : 256);
  return Registry::Get().failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) { return tfhvd::testing::Main(argc, argv); }
