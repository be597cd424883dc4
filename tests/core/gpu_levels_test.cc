// GPUs of several hosts in two levels, NCCL within and NCCL or the host across, on the fakes,
// against the suite of all communicators. Ranks are threads, hosts are sets of them.
#include "cc/process/gpu_levels.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cc/backends/staged/staged_communicator.h"
#include "tests/core/conformance.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Hosts = std::vector<int>;  // the host of each rank

// Runs `body(gpu, communicator, made)` on ranks that each have a GPU; the communicator is null
// where making it failed with `made`.
template <typename Body>
void OnHosts(const Hosts& hosts, bool nccl_across, const Body& body, double deadline = 120.0) {
  const FakeSetting gpus("GPUS", 8, 2);
  CudaDriver driver;
  NcclApi api;
  ASSERT_OK(LoadCudaDriver(FakeGpuLibrary(), &driver));
  ASSERT_OK(LoadNccl(FakeGpuLibrary(), "", &api));
  OnWorlds(static_cast<int>(hosts.size()), [&](World* world) {
    GpuRank gpu(driver, world->rank());
    std::unique_ptr<Communicator> host, comm;
    ASSERT_OK(world->OpenCommunicator(AllOf(world->size()), &host));
    GpuLevels options;
    options.job_rank = world->rank();
    options.host_of = hosts;
    options.open = [world](const std::vector<int>& members, std::unique_ptr<Communicator>* out) {
      return world->OpenCommunicator(members, out);
    };
    options.nccl_across = nccl_across;
    options.nccl.deadline = deadline;
    options.nccl.log = Log(LogLevel::kFatal, world->rank());
    const Status made =
        MakeGpuLevels(api, &gpu.device, host.get(), MakeStagedCommunicator(&gpu.device, host.get()),
                      options, &comm);
    body(&gpu, comm.get(), made);
    // An abort is for all that the levels rest on.
    if (comm == nullptr || comm->Poll().ok()) EXPECT_OK(host->Barrier());
  });
}

void RunSuite(const Hosts& hosts, bool nccl_across) {
  OnHosts(hosts, nccl_across, [](GpuRank* gpu, Communicator* comm, const Status& made) {
    ASSERT_OK(made);
    ByWayOfTheGpu on_host(gpu, comm);
    Conformance suite(&on_host, 1, /*exact=*/false);
    if (kThreadSanitizer) return suite.CheckMixture();
    suite.UpTo(1 << 20).RunAll();
  });
}

TEST(ConformsWith2Of2ByNcclAcross) { RunSuite({0, 0, 1, 1}, true); }
TEST(ConformsWith2Of2ByTheHostAcross) { RunSuite({0, 0, 1, 1}, false); }
// A lane that serves several ranks, and ranks placed in turns.
TEST(ConformsWith3And1) { RunSuite({0, 1, 0, 0}, true); }

TEST(WithoutOurKernelItIsStillRight) {
  const FakeSetting none("NO_KERNELS", 1);
  OnHosts({0, 0, 1}, true, [](GpuRank* gpu, Communicator* comm, const Status& made) {
    ASSERT_OK(made);
    ByWayOfTheGpu on_host(gpu, comm);
    Conformance(&on_host, 3, /*exact=*/false).CheckMixture();
  });
}

TEST(AbortEndsACall) {
  for (const bool nccl_across : {true, false}) {
    OnHosts({0, 0, 1, 1}, nccl_across, [](GpuRank* gpu, Communicator* comm, const Status& made) {
      ASSERT_OK(made);
      ByWayOfTheGpu on_host(gpu, comm);
      CheckAbort(&on_host);
    });
  }
}

TEST(AnErrorOnOneLevelIsFound) {
  const FakeSetting failing("NCCL_FAIL_AFTER", 3);
  OnHosts({0, 0, 1, 1}, true, [](GpuRank* gpu, Communicator* comm, const Status& made) {
    ASSERT_OK(made);
    ByWayOfTheGpu on_host(gpu, comm);
    std::vector<float> data(1000, 1.0f);
    Status status;
    for (int calls = 0; status.ok() && calls < 100; ++calls) {
      status = on_host.AllReduce(data.data(), data.data(), 1000, DType::kFloat32, Reduction());
    }
    EXPECT_ERROR(status, StatusCode::kInternal, "ibv_modify_qp failed (injected by a test)");
  });
}

TEST(OneLevelIsNotTwo) {
  for (const Hosts& hosts : {Hosts{0, 0}, Hosts{0, 1}}) {
    OnHosts(hosts, true, [](GpuRank*, Communicator* comm, const Status& made) {
      EXPECT_TRUE(comm == nullptr);
      EXPECT_EQ(made.code(), StatusCode::kUnavailable);
    });
  }
}

// Of the job's two hosts with two ranks each, sets on one of them, and with one rank on each.
TEST(AProcessSetOfOneLevelHasWhatCarriesThatLevel) {
  const FakeSetting gpus("GPUS", 8, 2);
  CudaDriver driver;
  NcclApi api;
  ASSERT_OK(LoadCudaDriver(FakeGpuLibrary(), &driver));
  ASSERT_OK(LoadNccl(FakeGpuLibrary(), "", &api));
  const struct {
    std::vector<int> members;
    bool nccl_across;
    const char* name;
  } cases[] = {{{0, 1}, false, "nccl"}, {{1, 3}, true, "nccl"}, {{0, 2}, false, "host"}};
  for (const auto& c : cases) {
    OnWorlds(4, [&](World* world) {
      const auto self = std::find(c.members.begin(), c.members.end(), world->rank());
      if (self == c.members.end()) return;
      GpuRank gpu(driver, world->rank());
      std::unique_ptr<Communicator> host, comm;
      ASSERT_OK(world->OpenCommunicator(c.members, &host));
      GpuLevels options;
      options.job_rank = world->rank();
      options.host_of = {0, 0, 1, 1};
      options.nccl_across = c.nccl_across;
      ASSERT_OK(MakeGpuLevels(api, &gpu.device, host.get(),
                              MakeStagedCommunicator(&gpu.device, host.get()), options, &comm));
      EXPECT_EQ(std::string(comm->name()), c.name);
      ByWayOfTheGpu on_host(&gpu, comm.get());
      float value = 1.0f;
      EXPECT_OK(on_host.AllReduce(&value, &value, 1, DType::kFloat32, Reduction()));
      EXPECT_EQ(value, 2.0f);
      EXPECT_OK(host->Barrier());
    });
  }
}

TEST(WhereNcclCannotBeSetUpEveryRankHearsWhy) {
  const FakeSetting failing("NCCL_INIT_FAILS", 4);
  const auto body = [](GpuRank*, Communicator* comm, const Status& made) {
    EXPECT_TRUE(comm == nullptr);
    EXPECT_CONTAINS(made.message(), "Update the driver");
  };
  OnHosts({0, 0, 1, 1}, true, body, /*deadline=*/0.2);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
