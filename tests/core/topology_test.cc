// Which ranks share a host.
#include "cc/comm/topology.h"

#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Hosts = std::vector<std::string>;

// {local_rank, local_size, cross_rank, cross_size} of every rank.
std::vector<std::vector<int>> Places(const Hosts& hosts) {
  std::vector<std::vector<int>> all;
  for (int r = 0; r < static_cast<int>(hosts.size()); ++r) {
    const Topology t = MakeTopology(r, hosts);
    EXPECT_EQ(t.rank, r);
    EXPECT_EQ(t.size, static_cast<int>(hosts.size()));
    EXPECT_EQ(t.hosts, hosts);
    all.push_back({t.local_rank, t.local_size, t.cross_rank, t.cross_size});
  }
  return all;
}

TEST(OneRank) {
  EXPECT_EQ(Places({"a"}), (std::vector<std::vector<int>>{{0, 1, 0, 1}}));
  EXPECT_TRUE(MakeTopology(0, {"a"}).homogeneous);
}

TEST(TwoHostsInBlocks) {
  EXPECT_EQ(
      Places({"a", "a", "b", "b"}),
      (std::vector<std::vector<int>>{{0, 2, 0, 2}, {1, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 1, 2}}));
}

TEST(TwoHostsInTurns) {
  EXPECT_EQ(
      Places({"a", "b", "a", "b"}),
      (std::vector<std::vector<int>>{{0, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 2}, {1, 2, 1, 2}}));
}

TEST(HostsCountInTheOrderOfTheirLowestRanks) {
  EXPECT_EQ(MakeTopology(2, {"b", "a", "b", "c", "a"}).host_of, (std::vector<int>{0, 1, 0, 2, 1}));
}

TEST(HostsOfDifferentSize) {
  EXPECT_EQ(Places({"a", "a", "b"}),
            (std::vector<std::vector<int>>{{0, 2, 0, 2}, {1, 2, 0, 1}, {0, 1, 1, 2}}));
  EXPECT_FALSE(MakeTopology(0, {"a", "a", "b"}).homogeneous);
  EXPECT_TRUE(MakeTopology(0, {"a", "b", "b", "a"}).homogeneous);
}

// The GPUs of a job of these local processes on one host, with the ranks in their order.
std::vector<int> Gpus(const std::vector<int>& local_processes, int gpus) {
  std::vector<int> taken;
  for (int r = 0; r < static_cast<int>(local_processes.size()); ++r) {
    Topology t = MakeTopology(r, Hosts(local_processes.size(), "a"));
    t.local_processes = local_processes;
    taken.push_back(GpuOf(t, gpus));
  }
  return taken;
}

TEST(RanksTakeTheGpusOfTheirPlaces) {
  EXPECT_EQ(Gpus({0, 1, 2, 3}, 4), (std::vector<int>{0, 1, 2, 3}));
  // Two jobs side by side.
  EXPECT_EQ(Gpus({0, 1}, 4), (std::vector<int>{0, 1}));
  EXPECT_EQ(Gpus({3, 2}, 4), (std::vector<int>{3, 2}));
  // Alone on a host with fewer GPUs than processes.
  EXPECT_EQ(Gpus({2, 3}, 2), (std::vector<int>{0, 1}));
}

TEST(RanksTakeTheGpusOfTheirLocalRanksWherePlacesWouldNotDo) {
  EXPECT_EQ(Gpus({0, 2}, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(Gpus({0, -1}, 4), (std::vector<int>{0, 1}));
  EXPECT_EQ(Gpus({0, 0}, 4), (std::vector<int>{0, 1}));
  EXPECT_EQ(GpuOf(MakeTopology(2, {"a", "b", "a"}), 2), 1);
}

TEST(PlacesOnOtherHostsDoNotMatter) {
  Topology t = MakeTopology(1, {"a", "b", "a"});
  t.local_processes = {1, 1, -1};
  EXPECT_EQ(GpuOf(t, 4), 1);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
