// Processes that end are noticed, though nobody has reaped them.
#include "cc/base/peer_processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "cc/comm/host_peers.h"
#include "cc/comm/topology.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

// A child that does nothing.
int Child() {
  const int pid = fork();
  if (pid == 0) {
    while (true) pause();
  }
  return pid;
}

// Waits until one has ended; its index.
int FirstEndedOf(const PeerProcesses& peers) {
  for (int i = 0; i < 10000; ++i) {
    const int ended = peers.FirstEnded();
    if (ended >= 0) return ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return -1;
}

TEST(AZombieHasEnded) {
  const std::vector<int> pids = {getpid(), Child(), Child()};
  {
    const PeerProcesses peers(pids);
    EXPECT_EQ(peers.FirstEnded(), -1);
    EXPECT_EQ(peers.pid(2), pids[2]);
    kill(pids[2], SIGKILL);
    EXPECT_EQ(FirstEndedOf(peers), 2);  // not reaped yet
    EXPECT_EQ(waitpid(pids[2], nullptr, 0), pids[2]);
    EXPECT_EQ(peers.FirstEnded(), 2);  // nor is its number known any more
  }
  kill(pids[1], SIGKILL);
  EXPECT_EQ(waitpid(pids[1], nullptr, 0), pids[1]);
}

TEST(AStoppedProcessHasNotEnded) {
  const int child = Child();
  const PeerProcesses peers({child});
  kill(child, SIGSTOP);
  EXPECT_EQ(waitpid(child, nullptr, WUNTRACED), child);
  EXPECT_EQ(peers.FirstEnded(), -1);
  kill(child, SIGKILL);
  EXPECT_EQ(FirstEndedOf(peers), 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(ARankOfThisHostThatHasDiedIsNamed) {
  const int child = Child();
  Topology topology = MakeTopology(1, {"a", "a", "a", "b"});
  topology.hosts = {"a", "a", "a", "b"};
  EXPECT_OK(HostPeers(topology).EveryoneRuns());  // ranks that are threads
  topology.pids = {getppid(), getpid(), child, 0};
  const HostPeers peers(topology);
  EXPECT_OK(peers.EveryoneRuns());
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_ERROR(peers.EveryoneRuns(), StatusCode::kAborted,
               "rank 2 (process " + std::to_string(child) + " on host a) has died");
}

TEST(NoProcessesHaveNotEnded) {
  const PeerProcesses peers(std::vector<int>{});
  EXPECT_TRUE(peers.empty());
  EXPECT_EQ(peers.FirstEnded(), -1);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
