// What ranks tell each other before the engine starts.
#include "cc/process/handshake.h"

#include <memory>
#include <string>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(EveryFieldSurvives) {
  const Handshake handshake{3,
                            "node-1.example",
                            "node-1.example 5f2c",
                            int64_t{1} << 40,
                            CpuOperations::kHierarchical,
                            0.1,
                            7,
                            4711,
                            "pid:[4026531836]"};
  Handshake back;
  ASSERT_OK(DecodeHandshake(EncodeHandshake(handshake), &back));
  EXPECT_EQ(back.protocol, 3);
  EXPECT_EQ(back.host, handshake.host);
  EXPECT_EQ(back.machine, handshake.machine);
  EXPECT_EQ(back.fusion_threshold, handshake.fusion_threshold);
  EXPECT_EQ(back.cpu_operations, handshake.cpu_operations);
  EXPECT_EQ(back.sparse_density, handshake.sparse_density);
  EXPECT_EQ(back.local_process, 7);
  EXPECT_EQ(back.pid, 4711);
  EXPECT_EQ(back.pid_namespace, handshake.pid_namespace);
}

TEST(ATestMaySayWhereItsRanksAre) {
  Config config;
  const std::string real = MakeHandshake(config).machine;
  config.test_host = "elsewhere";
  EXPECT_EQ(MakeHandshake(config).host, std::string("elsewhere"));
  EXPECT_FALSE(MakeHandshake(config).machine == real);
}

TEST(HalfAHandshakeIsRefused) {
  Handshake back;
  EXPECT_ERROR(DecodeHandshake("1\nhost\n", &back), StatusCode::kInternal, "malformed handshake");
  EXPECT_FALSE(DecodeHandshake("", &back).ok());
}

TEST(RankZerosSettingsAreEveryones) {
  static constexpr int kRanks = 3;
  InprocGroup group(kRanks);
  testing::RunThreads(kRanks, [&group](int rank) {
    const std::unique_ptr<World> world = group.OpenWorld(rank);
    std::unique_ptr<Communicator> communicator;
    ASSERT_OK(world->OpenCommunicator({0, 1, 2}, &communicator));
    Config config;
    config.fusion_threshold = 100 + rank;
    config.cycle_time = rank;
    config.sparse_density = 0.25 * (rank + 1);
    config.cpu_operations = rank == 0 ? CpuOperations::kMpi : CpuOperations::kShm;
    Topology topology;
    ASSERT_OK(ExchangeHandshakes(communicator.get(), &config, &topology));
    EXPECT_EQ(config.fusion_threshold, int64_t{100});
    EXPECT_EQ(config.cpu_operations, CpuOperations::kMpi);
    EXPECT_EQ(config.sparse_density, 0.25);
    EXPECT_EQ(config.cycle_time, static_cast<double>(rank));  // each rank's own affair
    EXPECT_EQ(topology.rank, rank);
    EXPECT_EQ(topology.size, kRanks);
    EXPECT_EQ(topology.local_rank, rank);  // threads share a host
    EXPECT_EQ(topology.local_size, kRanks);
    EXPECT_EQ(topology.cross_size, 1);
    EXPECT_EQ(topology.hosts, std::vector<std::string>(kRanks, MakeHandshake(config).host));
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
