// Communicators made of two, one within hosts and one across, against the suite of all
// communicators. Ranks are threads, hosts are sets of them.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cc/backends/shm/shm_communicator.h"
#include "cc/collectives/hierarchical/hierarchical_communicator.h"
#include "tests/core/conformance.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Hosts = std::vector<int>;  // the host of each rank

// Pieces so small that every collective takes many, and one lane is seldom enough.
const HierarchicalOptions kTiny = {20000, 100};

// Runs `body(communicator)` on every rank. `shared`: within a host through shared memory.
template <typename Body>
void OnHosts(const Hosts& hosts, bool shared, HierarchicalOptions options, const Body& body) {
  OnWorlds(static_cast<int>(hosts.size()), [&](World* world) {
    const int rank = world->rank();
    const HostLayout layout = MakeHostLayout(hosts);
    const size_t host = static_cast<size_t>(layout.host_of[static_cast<size_t>(rank)]);
    std::unique_ptr<Communicator> local;
    ASSERT_OK(world->OpenCommunicator(layout.ranks_of[host], &local));
    if (shared) {
      ShmOptions shm;
      shm.log = Log(LogLevel::kFatal, rank);
      std::unique_ptr<Communicator> made;
      ASSERT_OK(MakeShmCommunicator(local.get(), shm, &made));
      local = std::move(made);
    }
    std::unique_ptr<Communicator> across;
    const int place = layout.local_of[static_cast<size_t>(rank)];
    if (place < layout.lanes) {
      ASSERT_OK(world->OpenCommunicator(layout.LaneRanks(place), &across));
    }
    HierarchicalCommunicator comm(layout, rank, std::move(local), std::move(across), options);
    EXPECT_EQ(comm.rank(), rank);
    EXPECT_EQ(comm.size(), static_cast<int>(hosts.size()));
    body(&comm);
  });
}

void RunSuite(const Hosts& hosts, HierarchicalOptions options = {}, bool shared = false,
              int64_t large = 1 << 20) {
  OnHosts(hosts, shared, options, [&](Communicator* comm) {
    Conformance(comm).ByHosts(hosts, options.wide_floats).UpTo(large).RunAll();
  });
}

// Collectives of changing kinds and sizes alone.
void RunMixture(const Hosts& hosts, HierarchicalOptions options = {}) {
  OnHosts(hosts, false, options, [&](Communicator* comm) {
    Conformance(comm).ByHosts(hosts, options.wide_floats).CheckMixture();
  });
}

// All of it where it is quick: ThreadSanitizer watches the same threads in a few shapes.
void RunShape(const Hosts& hosts, HierarchicalOptions options = {}) {
  if (kThreadSanitizer) return RunMixture(hosts, options);
  RunSuite(hosts, options);
}

TEST(ConformsWith2Of2) { RunSuite({0, 0, 1, 1}, {}, false, (kThreadSanitizer ? 1 : 4) << 20); }
TEST(ConformsWith1Of4) { RunShape({0, 0, 0, 0}); }
TEST(ConformsWith4Of1) { RunShape({0, 1, 2, 3}); }
TEST(ConformsWith3And1) { RunShape({0, 0, 0, 1}); }
TEST(ConformsWith2Of4) { RunShape({0, 0, 0, 0, 1, 1, 1, 1}); }
// Placed in turns, or the last rank on the first host: lanes do not follow the order of ranks.
TEST(ConformsWithRanksPlacedInTurns) { RunMixture({0, 1, 0, 1}, kTiny); }
TEST(ConformsWithHostsAroundOthers) { RunShape({0, 1, 1, 0}, kTiny); }
// Lanes that serve several ranks.
TEST(ConformsWith5And2) { RunShape({0, 0, 1, 0, 1, 0, 0}, kTiny); }
TEST(ConformsWithThreeHosts) { RunMixture({0, 0, 1, 1, 1, 2, 2}, kTiny); }
TEST(ConformsWithWideFloats) {
  RunShape({0, 0, 1, 1}, {20000, 100, true});
  RunMixture({0, 0, 1, 0, 1, 0, 0}, {4 << 20, 16 << 10, true});
}
TEST(ConformsThroughSharedMemory) { RunSuite({0, 0, 0, 1, 1}, {}, true); }

// The sum of the ranks' values is no float16.
TEST(AveragesOfLargeFloat16AreNotInfinite) {
  for (const int64_t count : {int64_t{10}, int64_t{100000}}) {
    OnHosts({0, 0, 0, 1, 1}, false, {}, [count](Communicator* comm) {
      std::vector<Float16> values(static_cast<size_t>(count), ToFloat16(60000.0f));
      ASSERT_OK(comm->AllReduce(values.data(), values.data(), count, DType::kFloat16,
                                {ReduceOp::kAverage, 1.0, 1.0}));
      // Each host rounds its part.
      EXPECT_TRUE(std::abs(ToFloat(values.front()) - 60000.0f) <= 64.0f);
      EXPECT_TRUE(std::abs(ToFloat(values.back()) - 60000.0f) <= 64.0f);
    });
  }
}

TEST(AbortEndsACall) {
  for (const bool shared : {false, true}) {
    for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 1}}) {
      OnHosts(hosts, shared, {}, CheckAbort);
    }
  }
}

TEST(LayoutOfHosts) {
  const HostLayout layout = MakeHostLayout({7, 3, 3, 7, 7, 7, 7});
  EXPECT_EQ(layout.lanes, 2);
  EXPECT_EQ(layout.hosts(), 2);
  EXPECT_EQ(layout.host_of, (std::vector<int>{0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(layout.local_of, (std::vector<int>{0, 0, 1, 1, 2, 3, 4}));
  EXPECT_EQ(layout.ranks_of[0], (std::vector<int>{0, 3, 4, 5, 6}));
  EXPECT_EQ(layout.LaneRanks(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(layout.LaneRanks(1), (std::vector<int>{3, 2}));
  EXPECT_EQ(layout.InLane(0, 0), (std::vector<int>{0, 4, 6}));
  EXPECT_EQ(layout.InLane(0, 1), (std::vector<int>{3, 5}));
  EXPECT_EQ(layout.LaneOf(5), 1);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
