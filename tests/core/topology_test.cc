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

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
