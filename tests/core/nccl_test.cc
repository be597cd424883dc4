// The NCCL backend on the fakes of tests/gpu: the suite of all communicators, and what happens
// when peers, GPUs or NCCL fail. A fake shows that we call NCCL rightly by its documentation,
// and nothing of NCCL itself: a GPU has the last word (tests/gpu/run.sh).
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/backends/nccl/nccl_errors.h"
#include "cc/backends/nccl/nccl_reduction.h"
#include "cc/collectives/staged_communicator.h"
#include "tests/core/conformance.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

CudaDriver Driver() {
  CudaDriver driver;
  EXPECT_OK(LoadCudaDriver(FakeGpuLibrary(), &driver));
  return driver;
}

NcclApi Nccl() {
  NcclApi api;
  EXPECT_OK(LoadNccl(FakeGpuLibrary(), "", &api));
  return api;
}

// Runs `body(gpu, host, communicator)` on ranks that each have a GPU; `communicator` is made by
// NcclCommunicator::Make, or null where that failed with what `made` then holds.
template <typename Body>
void OnGpus(int size, const NcclOptions& options, const Body& body) {
  const FakeSetting gpus("GPUS", 8, 2);
  const CudaDriver driver = Driver();
  const NcclApi api = Nccl();
  OnRanks(size, [&](Communicator* host) {
    GpuRank gpu(driver, host->rank());
    std::unique_ptr<Communicator> comm;
    const Status made = NcclCommunicator::Make(
        api, &gpu.device, host, MakeStagedCommunicator(&gpu.device, host), options, &comm);
    body(&gpu, host, comm.get(), made);
    EXPECT_OK(host->Barrier());
  });
}

template <typename Body>
void OnGpus(int size, const Body& body) {
  OnGpus(size, NcclOptions(),
         [&](GpuRank* gpu, Communicator*, Communicator* comm, const Status& made) {
           ASSERT_OK(made);
           body(gpu, comm);
         });
}

void RunSuite(int size) {
  OnGpus(size, [](GpuRank* gpu, Communicator* comm) {
    ByWayOfTheGpu on_host(gpu, comm);
    Conformance suite(&on_host, 1, /*exact=*/false);
    // Beyond two ranks only who meets whom is new, not what is done to how many bytes.
    const bool again = comm->size() > 2;
    if (again && kThreadSanitizer) return suite.CheckMixture();
    if (again) suite.UpTo(1 << 20);
    suite.RunAll();
  });
}

TEST(ConformsWith1Rank) { RunSuite(1); }
TEST(ConformsWith2Ranks) { RunSuite(2); }
TEST(ConformsWith4Ranks) { RunSuite(4); }

TEST(TheWayThroughTheHostConformsToTheBit) {
  for (const bool kernel : {true, false}) {
    const FakeSetting none("NO_KERNELS", kernel ? 0 : 1);
    OnRanks(2, [driver = Driver(), kernel](Communicator* host) {
      GpuRank gpu(driver, host->rank());
      EXPECT_EQ(gpu.device.kernel().ok(), kernel);
      const auto staged = MakeStagedCommunicator(&gpu.device, host);
      ByWayOfTheGpu on_host(&gpu, staged.get());
      Conformance(&on_host).RunAll();
    });
  }
}

TEST(AbortEndsACall) {
  for (const int size : {2, 4}) {
    OnGpus(size, [](GpuRank* gpu, Communicator* comm) {
      ByWayOfTheGpu on_host(gpu, comm);
      CheckAbort(&on_host);
    });
  }
}

// What a rank had asked for when it was aborted does not reach the others, who hear of the abort
// when they are aborted themselves.
TEST(ARankThatWasAbortedMisleadsNobody) {
  OnGpus(2, NcclOptions(),
         [](GpuRank* gpu, Communicator* host, Communicator* comm, const Status& made) {
           ASSERT_OK(made);
           const Status why = Status::Aborted("a test says so");
           const GpuMemory memory(&gpu->driver, gpu->context, 4000);
           if (comm->rank() == 1) {
             EXPECT_OK(
                 comm->AllReduce(memory.data(), memory.data(), 1000, DType::kFloat32, Reduction()));
             EXPECT_OK(comm->Broadcast(memory.data(), 100, 0));
             comm->Abort(why);
             EXPECT_OK(gpu->device.Drain());
           }
           EXPECT_OK(host->Barrier());
           if (comm->rank() != 0) return;
           ByWayOfTheGpu on_host(gpu, comm);
           std::thread other([&] {
             std::this_thread::sleep_for(std::chrono::milliseconds(50));
             comm->Abort(why);
           });
           std::vector<float> data(1000, 1.0f);
           EXPECT_EQ(
               on_host.AllReduce(data.data(), data.data(), 1000, DType::kFloat32, Reduction()),
               why);
           other.join();
         });
}

TEST(AnErrorWhileACollectiveIsUnderWayIsFoundAndItsTextPassedOn) {
  const FakeSetting failing("NCCL_FAIL_AFTER", 3);
  const auto body = [](GpuRank* gpu, Communicator* comm) {
    ByWayOfTheGpu on_host(gpu, comm);
    std::vector<float> data(1000, 1.0f);
    Status status;
    int calls = 0;
    for (; status.ok() && calls < 100; ++calls) {
      status = on_host.AllReduce(data.data(), data.data(), 1000, DType::kFloat32, Reduction());
    }
    EXPECT_EQ(calls, 3);
    EXPECT_ERROR(status, StatusCode::kInternal, "system error");
    EXPECT_CONTAINS(status.message(), "ibv_modify_qp failed (injected by a test)");
    EXPECT_EQ(comm->Barrier(), status);
  };
  for (const int size : {1, 2, 4}) OnGpus(size, body);
}

TEST(RanksThatCallDifferentThingsHearOfIt) {
  for (const int size : {2, 4}) {
    OnGpus(size, [](GpuRank* gpu, Communicator* comm) {
      ByWayOfTheGpu on_host(gpu, comm);
      std::vector<float> data(20, 1.0f);
      EXPECT_ERROR(on_host.AllReduce(data.data(), data.data(), 10 + comm->rank(), DType::kFloat32,
                                     Reduction()),
                   StatusCode::kInternal, "rank 1: AllReduce of 11");
    });
  }
  OnGpus(2, [](GpuRank* gpu, Communicator* comm) {
    ByWayOfTheGpu on_host(gpu, comm);
    std::vector<char> in(8), out(8);
    const std::vector<int64_t> receive = {4 - comm->rank(), 4};
    const Status status = on_host.AllToAll(in.data(), {4, 4}, out.data(), receive);
    if (comm->rank() == 1) {
      EXPECT_ERROR(status, StatusCode::kInternal, "rank 0 sends 4 bytes and rank 1 expects 3");
    }
  });
}

TEST(PeersThatCannotBeReachedEndInAnErrorOnEveryRank) {
  const FakeSetting unreachable("NCCL_UNREACHABLE", 1);
  NcclOptions options;
  options.deadline = 0.2;
  options.log = Log(LogLevel::kFatal, 0);
  OnGpus(3, options, [](GpuRank*, Communicator*, Communicator* comm, const Status& made) {
    EXPECT_TRUE(comm == nullptr);
    EXPECT_ERROR(made, StatusCode::kAborted, "rank 0: ncclCommInitRankConfig did not end within");
    EXPECT_CONTAINS(made.message(), "NCCL_SOCKET_IFNAME");
  });
}

// As the engine, once another rank has told it that the job is lost.
class EndsInit : public WaitMonitor {
 public:
  Status OnWait(const Wait& wait) override {
    const bool init = std::string(wait.call) == "ncclCommInitRankConfig";
    return init ? Status::Aborted("rank 1 has ended") : Status::Ok();
  }
};

TEST(AWaitForPeersEndsWhereTheMonitorSaysSo) {
  const FakeSetting unreachable("NCCL_UNREACHABLE", 1);
  const CudaDriver driver = Driver();
  const NcclApi api = Nccl();
  OnRanks(2, [&](Communicator* host) {
    GpuRank gpu(driver, host->rank());
    EndsInit monitor;
    host->SetWaitMonitor(&monitor);
    NcclOptions options;
    options.deadline = 600.0;
    options.log = Log(LogLevel::kFatal, 0);
    std::unique_ptr<Communicator> comm;
    EXPECT_ERROR(NcclCommunicator::Make(api, &gpu.device, host,
                                        MakeStagedCommunicator(&gpu.device, host), options, &comm),
                 StatusCode::kAborted, "rank 1 has ended");
    host->SetWaitMonitor(nullptr);
    EXPECT_OK(host->Barrier());
  });
}

// One rank knows what is wrong, the others see nobody come: all say what the one knows.
TEST(NcclsOwnWordsComeWithTheirLikelyCauseFromWhicheverRankHeardThem) {
  const struct {
    const char* rank;
    const char* words;
    const char* advice;
  } cases[] = {{"rank 1: ncclCommInitRankConfig", "/dev/shm/nccl-", "--shm-size"},
               {"rank 0: ncclGetUniqueId", "no socket interface found", "NCCL_SOCKET_IFNAME"},
               {"rank 1: ncclCommInitRankConfig", "Connection refused", "NCCL_SOCKET_IFNAME"},
               {"rank 1: ncclCommInitRankConfig", "CUDA driver version is insufficient",
                "Update the driver"},
               {"rank 1: ncclCommInitRankConfig", "Duplicate GPU detected",
                "tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')"}};
  NcclOptions options;
  options.deadline = 0.1;
  options.log = Log(LogLevel::kFatal, 0);
  int number = 0;
  for (const auto& c : cases) {
    const FakeSetting failing("NCCL_INIT_FAILS", ++number);
    OnGpus(2, options, [&](GpuRank*, Communicator*, Communicator*, const Status& made) {
      EXPECT_ERROR(made, StatusCode::kInternal, c.rank);
      EXPECT_CONTAINS(made.message(), c.words);
      EXPECT_CONTAINS(made.message(), c.advice);
    });
  }
}

TEST(TwoRanksOnOneGpuAreRefusedUnlessAskedFor) {
  for (const bool asked : {false, true}) {
    OnRanks(3, [asked, driver = Driver(), api = Nccl()](Communicator* host) {
      GpuRank gpu(driver, host->rank() == 2 ? 1 : 0);
      std::unique_ptr<Communicator> comm;
      NcclOptions options;
      options.shared_gpu = asked;
      const Status made = NcclCommunicator::Make(
          api, &gpu.device, host, MakeStagedCommunicator(&gpu.device, host), options, &comm);
      if (asked) {
        EXPECT_OK(made);
      } else {
        EXPECT_ERROR(made, StatusCode::kFailedPrecondition, "ranks 0 and 1 use the same GPU");
        EXPECT_CONTAINS(made.message(), "GPU 0 (fake)");
      }
      EXPECT_OK(host->Barrier());
    });
  }
}

TEST(TensorsOnTwoGpusOfOneRankAreAnError) {
  const CudaDriver driver = Driver();
  GpuRank one(driver, 0);
  GpuRank other(driver, 1);
  const GpuMemory elsewhere(&driver, other.context, 64);
  std::shared_ptr<void> mark;
  EXPECT_ERROR(one.device.Mark(one.stream, elsewhere.data(), &mark), StatusCode::kInvalidArgument,
               "a tensor on GPU 1. Expected: all on GPU 0");
  EXPECT_OK(one.device.Mark(one.stream, nullptr, &mark));  // an empty tensor is nowhere
}

TEST(AnEmptyTensorsStreamSaysWhichGpuItIs) {
  const CudaDriver driver = Driver();
  const GpuRank first(driver, 1);
  CudaDevice device(driver);
  std::shared_ptr<void> mark;
  EXPECT_OK(device.Mark(first.stream, nullptr, &mark));
  EXPECT_EQ(device.context(), first.context);
}

TEST(WhatIsNotThereIsSaid) {
  CudaDriver driver;
  EXPECT_ERROR(LoadCudaDriver("", &driver), StatusCode::kUnavailable, "TFHVD_CUDA_LIBRARY");
  EXPECT_ERROR(LoadCudaDriver("libno_driver.so.9", &driver), StatusCode::kUnavailable,
               "no GPU driver");
  EXPECT_ERROR(LoadCudaDriver("libc.so.6", &driver), StatusCode::kUnavailable, "has no cuInit");
  {
    const FakeSetting none("GPUS", 0, 2);
    EXPECT_ERROR(LoadCudaDriver(FakeGpuLibrary(), &driver), StatusCode::kUnavailable,
                 "CUDA_ERROR_NO_DEVICE");
  }
  NcclApi api;
  EXPECT_ERROR(LoadNccl("", "", &api), StatusCode::kUnavailable, "TFHVD_NCCL_LIBRARY");
  EXPECT_ERROR(LoadNccl("libno_nccl.so.9", "", &api), StatusCode::kUnavailable,
               "pip install nvidia-nccl-cu12");
  EXPECT_ERROR(LoadNccl("libc.so.6", "", &api), StatusCode::kUnavailable, "has no nccl");
  EXPECT_OK(LoadNccl("libno_nccl.so.9", FakeGpuLibrary(), &api));  // the wheel's
  // What the process has loaded comes first, wherever it is from: TensorFlow's, by its name.
  EXPECT_OK(LoadNccl("libtfhvd_fake_gpu.so", "/no/wheel/libtfhvd_fake_gpu.so", &api));
  EXPECT_EQ(api.Version(), std::string("2.27.7"));
  EXPECT_EQ(Driver().Version(), std::string("12.5"));
}

// As they stand in NCCL 2.27.7, with the system's words where it has "%s".
TEST(NcclsWordsGetTheirLikelyCause) {
  const std::pair<const char*, const char*> cases[] = {
      {"Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space "
       "left on device (28)",
       "--shm-size"},
      {"Error: failed to create shared memory file /dev/shm/nccl-XXXXXX, error Read-only file "
       "system (30)",
       "--ipc=host"},
      {"error: No space left on device (28)", "Shared memory is full"},
      {"Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 100000", "same GPU"},
      {"Bootstrap : no socket interface found", "NCCL found no network interface"},
      {"NET/Socket : No usable listening interface found", "NCCL found no network interface"},
      {"NET/Socket : no interface found", "NCCL_SOCKET_IFNAME"},
      {"connect to 10.0.0.2<40119> returned Connection refused, exceeded error retry count after "
       "35 attempts",
       "cannot reach each other"},
      {"connect to 10.0.0.2<40119> returned No route to host", "check the firewall"},
      {"connect to 10.0.0.2<40119> returned Connection timed out", "NCCL_SOCKET_IFNAME"},
      {"Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'", "driver"},
      {"Insufficient driver: 11040 < 12000", "Update the driver"},
      {"Cuda failure 2 'out of memory'", "TF_FORCE_GPU_ALLOW_GROWTH"},
      {"remote process exited or there was a network error", "Another rank has ended"},
      {"socketProgress: Connection closed by remote peer b<50212>", "Another rank has ended"}};
  for (const auto& [words, advice] : cases) EXPECT_CONTAINS(NcclLikelyCause(words), advice);
  EXPECT_EQ(NcclLikelyCause("something else"), std::string());
}

TEST(ReductionsAreDoneByNcclWhereItIsExactEnough) {
  const auto plan = [](DType dtype, ReduceOp op, double pre, double post, bool scale_input = true) {
    return PlanNcclReduction(dtype, {op, pre, post}, 4, scale_input);
  };
  // An average of floats is a plain sum, which the network's switches can do, and one factor.
  auto p = plan(DType::kBFloat16, ReduceOp::kAverage, 1.0, 1.0);
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(p->op, nccl::kSum);
  EXPECT_EQ(p->after, 0.25);
  EXPECT_EQ(p->before, 1.0);
  p = plan(DType::kFloat32, ReduceOp::kAverage, 3.0, 8.0);
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(p->after, 6.0);
  // A factor that keeps a narrow sum from overflowing stays before it.
  p = plan(DType::kFloat16, ReduceOp::kSum, 0.25, 1.0);
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(p->before, 0.25);
  EXPECT_EQ(p->after, 1.0);
  EXPECT_FALSE(plan(DType::kFloat16, ReduceOp::kSum, 0.25, 1.0, false).has_value());
  // A mean of float16 is made smaller before it is summed up; where that cannot be, by NCCL.
  p = plan(DType::kFloat16, ReduceOp::kAverage, 1.0, 1.0);
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(p->before, 0.25);
  EXPECT_EQ(p->after, 1.0);
  p = plan(DType::kFloat16, ReduceOp::kAverage, 1.0, 1.0, false);
  ASSERT_TRUE(p.has_value());
  EXPECT_EQ(p->premul, 0.25);
  EXPECT_EQ(p->after, 1.0);
  EXPECT_FALSE(plan(DType::kFloat32, ReduceOp::kMax, 2.0, 1.0, false).has_value());
  // Integers: exact or not at all.
  EXPECT_TRUE(plan(DType::kInt32, ReduceOp::kSum, 1.0, 1.0).has_value());
  EXPECT_FALSE(plan(DType::kInt64, ReduceOp::kAverage, 1.0, 1.0).has_value());
  EXPECT_FALSE(plan(DType::kInt32, ReduceOp::kSum, 1.0, 2.0).has_value());
  EXPECT_TRUE(plan(DType::kBool, ReduceOp::kMax, 1.0, 1.0).has_value());
  EXPECT_TRUE(plan(DType::kUInt64, ReduceOp::kMin, 1.0, 1.0).has_value());
  // NCCL has no integers of 16 bits.
  EXPECT_FALSE(plan(DType::kInt16, ReduceOp::kSum, 1.0, 1.0).has_value());
  EXPECT_FALSE(plan(DType::kUInt16, ReduceOp::kMax, 1.0, 1.0).has_value());
}

// More segments than one launch takes, of all alignments; and a factor that rides on the copies.
TEST(ManyCopiesAreDoneTogether) {
  const CudaDriver driver = Driver();
  GpuRank gpu(driver, 0);
  const GpuMemory from(&driver, gpu.context, 1 << 20), to(&driver, gpu.context, 1 << 20);
  for (int i = 0; i < (1 << 20); ++i) from.data()[i] = static_cast<char>(i * 7);
  std::string expected(1 << 20, '\0');
  std::memset(to.data(), 0, expected.size());
  Random random(3);
  int64_t at = 0;
  for (int i = 0; i < 300; ++i) {
    const int64_t n = random.Below(3000);
    const int64_t source = random.Below(1 << 18);
    EXPECT_OK(gpu.device.Copy(to.data() + at, from.data() + source, n));
    std::memcpy(&expected[static_cast<size_t>(at)], from.data() + source, static_cast<size_t>(n));
    at += n + random.Below(3);
  }
  EXPECT_OK(gpu.device.Drain());
  EXPECT_EQ(std::memcmp(to.data(), expected.data(), expected.size()), 0);

  auto* const values = reinterpret_cast<float*>(from.data());
  for (int i = 0; i < 100; ++i) values[i] = static_cast<float>(i);
  gpu.device.copies()->Scale(values, 100, DType::kFloat32, 0.5);
  EXPECT_OK(gpu.device.Copy(to.data(), values, 240));
  EXPECT_OK(gpu.device.Copy(to.data() + 240, values + 60, 160));
  EXPECT_OK(gpu.device.Drain());
  const auto* const scaled = reinterpret_cast<const float*>(to.data());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(scaled[i], 0.5f * static_cast<float>(i));
  EXPECT_EQ(values[99], 99.0f);  // touched once: the copies are scaled, not what they come from

  gpu.device.copies()->Scale(values, 100, DType::kFloat32, 0.5);
  EXPECT_OK(gpu.device.Drain());
  EXPECT_EQ(values[99], 49.5f);  // nothing was copied out of it
}

// Elements before and behind what is asked for stay as they are, however `to` and `from` lie.
void CheckCast(GpuRank* gpu, DType to_type, DType from_type, int64_t n, int64_t to_skip,
               int64_t from_skip) {
  const int64_t to_item = ItemSize(to_type);
  const int64_t begin = to_skip * to_item;
  const GpuMemory from(&gpu->driver, gpu->context, (n + from_skip) * 8);
  const GpuMemory to(&gpu->driver, gpu->context, begin + n * to_item + 64);
  Buffer in(n * ItemSize(from_type));
  FillRandom(&in, from_type, 5, true);
  char* const source = from.data() + from_skip * ItemSize(from_type);
  std::memcpy(source, in.data(), static_cast<size_t>(in.bytes()));
  std::memset(to.data(), 0x5a, static_cast<size_t>(begin + n * to_item + 64));
  gpu->device.copies()->AddScaled(to.data() + begin, to_type, source, from_type, n, 0.375);
  EXPECT_OK(gpu->device.Release(gpu->stream));
  EXPECT_OK(gpu->device.Drain());
  for (int64_t i = 0; i < n; ++i) {
    const double wanted = ValueAt(source, from_type, i) * 0.375;
    const double got = ValueAt(to.data() + begin, to_type, i);
    const DType coarser = ItemSize(to_type) < ItemSize(from_type) ? to_type : from_type;
    const double allowed = IsFloat(coarser) ? Epsilon(coarser) * std::abs(wanted) + 0x1p-24 : 1.0;
    if (!(std::abs(got - wanted) <= allowed)) EXPECT_EQ(got, wanted);
  }
  for (int64_t i = 0; i < begin; ++i) EXPECT_EQ(to.data()[i], 0x5a);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(to.data()[begin + n * to_item + i], 0x5a);
}

void CheckCasts(GpuRank* gpu, DType to_type, DType from_type) {
  const int64_t block = kBatchedCopyBlockBytes / ItemSize(to_type);
  for (const int64_t n : {int64_t{1}, int64_t{7}, int64_t{1000}, 2 * block, 3 * block + 1}) {
    CheckCast(gpu, to_type, from_type, n, 0, 0);
    CheckCast(gpu, to_type, from_type, n, 1, 1);
    CheckCast(gpu, to_type, from_type, n, 3, 2);
  }
}

// The sum of what four ranks have is no float16, their mean is: as copies into a buffer, as a
// tensor by itself, and as parts.
TEST(AMeanOfFloat16DoesNotOverflow) {
  OnGpus(4, [](GpuRank* gpu, Communicator* comm) {
    constexpr int64_t kCount = 8;
    const Float16 large = ToFloat16(40000.0f);
    const GpuMemory tensor(&gpu->driver, gpu->context, kCount * 2);
    const GpuMemory buffer(&gpu->driver, gpu->context, kCount * 2);
    auto* const in = reinterpret_cast<Float16*>(tensor.data());
    const auto* const out = reinterpret_cast<const Float16*>(buffer.data());
    std::fill_n(in, kCount, large);
    const Reduction mean{ReduceOp::kAverage, 1.0, 1.0};
    const auto check = [&](int64_t count) {
      EXPECT_OK(gpu->device.Drain());
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(out[i].bits, large.bits);
      std::memset(buffer.data(), 0, kCount * 2);
    };
    EXPECT_OK(gpu->device.Copy(buffer.data(), tensor.data(), 6));
    EXPECT_OK(gpu->device.Copy(buffer.data() + 6, tensor.data() + 6, kCount * 2 - 6));
    EXPECT_OK(comm->AllReduce(buffer.data(), buffer.data(), kCount, DType::kFloat16, mean));
    check(kCount);
    EXPECT_OK(comm->AllReduce(tensor.data(), buffer.data(), kCount, DType::kFloat16, mean));
    check(kCount);
    EXPECT_OK(
        comm->ReduceScatter(tensor.data(), buffer.data(), {2, 2, 2, 2}, DType::kFloat16, mean));
    check(2);
    EXPECT_OK(gpu->device.Zero(tensor.data(), kCount * 2));
    EXPECT_OK(gpu->device.Drain());
    EXPECT_EQ(in[kCount - 1].bits, 0);
  });
}

// The types that were there when the kernel was made: others are scaled on the host.
constexpr int kTypesOfTheKernel = static_cast<int>(DType::kBool) + 1;

TEST(TheKernelScalesAndCastsEveryType) {
  const CudaDriver driver = Driver();
  GpuRank gpu(driver, 0);
  for (int t = 0; t < kTypesOfTheKernel; ++t) {
    const DType dtype = static_cast<DType>(t);
    if (dtype != DType::kBool) CheckCasts(&gpu, dtype, dtype);
  }
  for (const DType narrow : {DType::kFloat16, DType::kBFloat16}) {
    CheckCasts(&gpu, narrow, DType::kFloat32);
    CheckCasts(&gpu, DType::kFloat32, narrow);
  }
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
