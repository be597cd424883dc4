// What ranks tell each other before the engine starts.
#include "cc/rendezvous/handshake.h"

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
                            12345,
                            CpuOperations::kHierarchical,
                            0.1,
                            OnNotFinite::kOff,
                            OnOutlier::kSkip,
                            7,
                            4711,
                            "pid:[4026531836]",
                            {{"1.2.3", "2.21"}, "secret host:4711"},
                            true};
  Handshake back;
  ASSERT_OK(DecodeHandshake(EncodeHandshake(handshake), &back));
  EXPECT_EQ(back.protocol, 3);
  EXPECT_EQ(back.host, handshake.host);
  EXPECT_EQ(back.machine, handshake.machine);
  EXPECT_EQ(back.fusion_threshold, handshake.fusion_threshold);
  EXPECT_EQ(back.alone_bytes, handshake.alone_bytes);
  EXPECT_EQ(back.cpu_operations, handshake.cpu_operations);
  EXPECT_EQ(back.sparse_density, handshake.sparse_density);
  EXPECT_TRUE(back.on_not_finite == OnNotFinite::kOff);
  EXPECT_TRUE(back.on_outlier == OnOutlier::kSkip);
  EXPECT_EQ(back.local_process, 7);
  EXPECT_EQ(back.pid, 4711);
  EXPECT_EQ(back.pid_namespace, handshake.pid_namespace);
  EXPECT_EQ(back.identity.versions.tfhvd, std::string("1.2.3"));
  EXPECT_EQ(back.identity.versions.tensorflow, std::string("2.21"));
  EXPECT_EQ(back.identity.watch_address, std::string("secret host:4711"));
  EXPECT_TRUE(back.float32_across_hosts);
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
  std::string text = EncodeHandshake(MakeHandshake(Config{}));
  text.resize(text.size() / 2);
  EXPECT_ERROR(DecodeHandshake(text, &back), StatusCode::kInternal, "malformed handshake");
  EXPECT_FALSE(DecodeHandshake("", &back).ok());
}

// So that its rank can be named, whatever else it sends.
TEST(AHandshakeOfAnotherProtocolMayBeShorter) {
  Handshake back;
  ASSERT_OK(DecodeHandshake("1\nhost\n", &back));
  EXPECT_EQ(back.protocol, 1);
  EXPECT_EQ(back.host, std::string("host"));
  EXPECT_EQ(back.identity.versions.tfhvd, std::string());
}

TEST(RanksOfOtherVersionsAreNamed) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  const std::vector<int> same(4, 9);
  const Versions mine{"1.2", "2.21"};
  EXPECT_OK(CheckVersions(same, {mine, mine, mine, mine}, hosts));
  EXPECT_OK(CheckVersions(same, {mine, {"1.2", ""}, mine, {"1.2", ""}}, hosts));
  EXPECT_ERROR(CheckVersions(same, {mine, mine, {"1.3", "2.21"}, mine}, hosts),
               StatusCode::kFailedPrecondition,
               "different versions of tfhvd: 1.2 on ranks 0-1, 3 (hosts a, b); 1.3 on rank 2 "
               "(host b). Install the same version on every host");
  EXPECT_ERROR(
      CheckVersions({9, 9, 8, 8}, {mine, mine, {}, {}}, hosts), StatusCode::kFailedPrecondition,
      "1.2 (protocol 9) on ranks 0-1 (host a); unknown (protocol 8) on ranks 2-3 (host b)");
  EXPECT_ERROR(CheckVersions(same, {mine, {"1.2", "2.20"}, mine, {"1.2", ""}}, hosts),
               StatusCode::kFailedPrecondition,
               "different versions of TensorFlow: 2.21 on ranks 0, 2 (hosts a, b); 2.20 on rank 1 "
               "(host a)");
}

TEST(AJobOfMixedVersionsFailsOnEveryRank) {
  static constexpr int kRanks = 2;
  InprocGroup group(kRanks);
  testing::RunThreads(kRanks, [&group](int rank) {
    const std::unique_ptr<World> world = group.OpenWorld(rank);
    std::unique_ptr<Communicator> communicator;
    ASSERT_OK(world->OpenCommunicator({0, 1}, &communicator));
    Config config;
    Topology topology;
    const Identity mine{{rank == 0 ? "1.2" : "1.3", "2.21"}, ""};
    EXPECT_ERROR(ExchangeHandshakes(communicator.get(), &config, &topology, mine),
                 StatusCode::kFailedPrecondition, "1.2 on rank 0");
  });
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
    config.alone_bytes = 200 + rank;
    config.bucket_bytes = rank;
    config.cycle_time = rank;
    config.sparse_density = 0.25 * (rank + 1);
    config.on_not_finite = rank == 0 ? OnNotFinite::kRaise : OnNotFinite::kOff;
    config.on_outlier = rank == 0 ? OnOutlier::kSkip : OnOutlier::kOff;
    config.float32_across_hosts = rank == 0;
    config.cpu_operations = rank == 0 ? CpuOperations::kMpi : CpuOperations::kShm;
    Topology topology;
    const Identity mine{{}, "at " + std::to_string(rank)};
    ASSERT_OK(ExchangeHandshakes(communicator.get(), &config, &topology, mine));
    EXPECT_EQ(config.fusion_threshold, int64_t{100});
    EXPECT_EQ(config.alone_bytes, int64_t{200});
    EXPECT_EQ(config.bucket_bytes, int64_t{rank});  // each rank's own affair, as the next
    EXPECT_EQ(config.cpu_operations, CpuOperations::kMpi);
    EXPECT_EQ(config.sparse_density, 0.25);
    EXPECT_TRUE(config.on_not_finite == OnNotFinite::kRaise);
    EXPECT_TRUE(config.on_outlier == OnOutlier::kSkip);
    EXPECT_TRUE(config.float32_across_hosts);
    EXPECT_EQ(config.cycle_time, static_cast<double>(rank));  // each rank's own affair
    EXPECT_EQ(topology.rank, rank);
    EXPECT_EQ(topology.watch_addresses, (std::vector<std::string>{"at 0", "at 1", "at 2"}));
    EXPECT_EQ(topology.size, kRanks);
    EXPECT_EQ(topology.local_rank, rank);  // threads share a host
    EXPECT_EQ(topology.watch_addresses, (std::vector<std::string>{"at 0", "at 1", "at 2"}));
    EXPECT_EQ(topology.local_size, kRanks);
    EXPECT_EQ(topology.cross_size, 1);
    EXPECT_EQ(topology.hosts, std::vector<std::string>(kRanks, MakeHandshake(config).host));
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
