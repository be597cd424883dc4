// Ranks as threads: the job that tests of backends and engines run in.
//
//   OnRanks(4, [](Communicator* comm) { EXPECT_OK(comm->Barrier()); });
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/comm/communicator.h"
#include "cc/comm/world.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

// 0 .. size - 1.
inline std::vector<int> AllOf(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

inline std::unique_ptr<Communicator> Open(World* world, const std::vector<int>& members) {
  std::unique_ptr<Communicator> comm;
  EXPECT_OK(world->OpenCommunicator(members, &comm));
  return comm;
}

// Runs `body(world)` on every rank of a fresh group.
template <typename Body>
void OnWorlds(int size, const Body& body) {
  InprocGroup group(size);
  RunThreads(size, [&](int rank) {
    const std::unique_ptr<World> world = group.OpenWorld(rank);
    body(world.get());
    EXPECT_OK(world->Close());
  });
}

// Runs `body(communicator)` on every rank of a fresh group, with the communicator of all of them.
template <typename Body>
void OnRanks(int size, const Body& body) {
  OnWorlds(size, [&](World* world) {
    std::unique_ptr<Communicator> comm;
    ASSERT_OK(world->OpenCommunicator(AllOf(size), &comm));
    EXPECT_EQ(comm->rank(), world->rank());
    EXPECT_EQ(comm->size(), size);
    body(comm.get());
  });
}

}  // namespace testing
}  // namespace tfhvd
