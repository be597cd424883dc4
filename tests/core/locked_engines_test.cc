// Engines that lock their schedule, as threads, over the means of one process, of one host and of
// several: a program that deviates now and then gets every sum right, whatever the ranks' pace.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/backends/shm/shm_communicator.h"
#include "cc/backends/shm/shm_control_plane.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Random = std::mt19937;

constexpr int kNames = 5;

// How many steps a program has: so many, or few where a sanitizer makes each many times slower.
constexpr int Steps(int usually) { return testing::kSanitizer ? 250 : usually; }

int Below(Random* random, int n) {
  return static_cast<int>((*random)() % static_cast<uint32_t>(n));
}

enum class Kind {
  kExtra,
  kMissing,
  kNewShape,
  kMismatch,
  kTwice,
  kPause,
  kFault,  // one rank's call is wrong by itself
  kJoin,   // one rank joins after some of the tensors, the others after all
  kSets,   // a process set is made in the middle of the step, used, and removed
  kPlain
};

// What is common to all ranks of a step.
struct Plan {
  Kind kind = Kind::kPlain;
  int name = 0;
  int rank = 0;
};

Plan PlanOf(int step, int size) {
  Random random(static_cast<uint32_t>(step) * 31 + 7);
  random.discard(5);
  Plan plan;
  plan.kind = static_cast<Kind>(std::min(Below(&random, 80), static_cast<int>(Kind::kPlain)));
  plan.name = Below(&random, kNames);
  plan.rank = Below(&random, size);
  const bool needs_others = plan.kind == Kind::kMismatch || plan.kind == Kind::kSets;
  if (size == 1 && needs_others) plan.kind = Kind::kPlain;
  return plan;
}

// Some of the ranks, never all.
std::vector<int64_t> SomeRanks(int step, int size) {
  std::vector<int64_t> ranks;
  for (int r = step % 2; r < size; r += 2) ranks.push_back(r);
  return ranks;
}

void UseAndRemove(Rank* rank, int32_t set, const std::vector<int64_t>& members) {
  if (std::find(members.begin(), members.end(), rank->rank()) != members.end()) {
    Call call;
    call.in.assign(3, 1.0f);
    call.out.assign(3, -1.0f);
    Entry entry = EntryFor(&call, Collective::kAllReduce, "t1", {3});
    entry.request.Edit()->key.process_set = set;
    rank->engine()->Submit(std::move(entry));
    EXPECT_OK(call.Wait());
    EXPECT_TRUE(AllEqual(call.out, static_cast<float>(members.size())));
  }
  Remove(rank, members);
}

void ExchangeWithAFault(Rank* rank, int wrong) {
  Call call;
  call.in.assign(static_cast<size_t>(rank->size()), 1.0f);
  Entry entry = EntryFor(&call, Collective::kAllToAll, "exchange", {rank->size()});
  entry.EditExtras()->splits.assign(static_cast<size_t>(rank->size()),
                                    rank->rank() == wrong ? 2 : 1);
  rank->engine()->Submit(std::move(entry));
  EXPECT_ERROR(call.Wait(), StatusCode::kInvalidArgument, "on rank " + std::to_string(wrong));
}

void RunStep(Rank* rank, int step, Random* own) {
  const Plan plan = PlanOf(step, rank->size());
  if (plan.kind == Kind::kPause && plan.rank == rank->rank()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::vector<int> order;
  for (int n = 0; n < kNames; ++n) {
    const bool joins = plan.kind == Kind::kJoin && plan.rank == rank->rank();
    if (plan.kind == Kind::kMissing && n == plan.name) continue;
    if (!joins || n < plan.name) order.push_back(n);
  }
  if (plan.kind == Kind::kExtra) order.push_back(kNames);
  std::shuffle(order.begin(), order.end(), *own);

  std::vector<std::unique_ptr<Call>> calls;
  std::vector<bool> fails;
  const std::vector<int64_t> members = SomeRanks(step, rank->size());
  const auto middle = static_cast<size_t>(Below(own, kNames));
  int32_t set = 0;
  for (int n : order) {
    if (plan.kind == Kind::kSets && calls.size() == middle) set = Added(rank, members);
    size_t length = static_cast<size_t>(n) * 900 + 1;
    const bool chosen = n == plan.name;
    if (plan.kind == Kind::kNewShape && chosen) length += 3;
    if (plan.kind == Kind::kMismatch && chosen && plan.rank == rank->rank()) length += 5;
    fails.push_back(plan.kind == Kind::kMismatch && chosen);
    const auto value = static_cast<float>(rank->rank() + step % 17 + n);
    calls.push_back(AllReduce(rank, "t" + std::to_string(n), length, value));
  }
  int64_t last = -1;
  const bool first_to_join = plan.kind == Kind::kJoin && plan.rank == rank->rank();
  if (first_to_join) EXPECT_OK(Join(rank, &last));
  for (size_t i = 0; i < calls.size(); ++i) {
    const Status status = calls[i]->Wait();
    if (fails[i]) {
      EXPECT_ERROR(status, StatusCode::kInvalidArgument, "Mismatched shapes");
      continue;
    }
    EXPECT_OK(status);
    const int n = order[i];
    auto expected = SumOfRanks(rank->size()) + static_cast<float>(rank->size() * (step % 17 + n));
    if (plan.kind == Kind::kJoin && n >= plan.name) {
      expected -= static_cast<float>(plan.rank + step % 17 + n);
    }
    EXPECT_TRUE(AllEqual(calls[i]->out, expected));
  }
  if (plan.kind == Kind::kJoin && !first_to_join) EXPECT_OK(Join(rank, &last));
  if (plan.kind == Kind::kSets) UseAndRemove(rank, set, members);
  if (plan.kind == Kind::kFault) ExchangeWithAFault(rank, plan.rank);
  if (plan.kind != Kind::kTwice) return;
  auto again = AllReduce(rank, "t0", 1, 1.0f);
  EXPECT_OK(again->Wait());
  EXPECT_EQ(again->out[0], static_cast<float>(rank->size()));
}

void RunProgram(Rank* rank, int steps) {
  Random own(static_cast<uint32_t>(rank->rank()));
  for (int step = 0; step < steps; ++step) RunStep(rank, step, &own);
}

// Ranks wait more than they compute, so jobs of all sizes run beside each other.
TEST(DeviationsOverInproc) {
  testing::RunThreads(8, [](int others) {
    RunRanks(others + 1, [](Rank* rank) { RunProgram(rank, Steps(2000)); });
  });
}

// A step that is tried with other settings all the time: each way gives the same sums.
TEST(DeviationsWhileSettingsAreTried) {
  Config config;
  config.autotune = true;
  config.fusion_threshold = 0;
  RunRanks(3, [](Rank* rank) { RunProgram(rank, Steps(2000)); }, config);
  config.alone_bytes = 8;  // of two floats on
  RunRanks(
      2,
      [](Rank* rank) {
        Random own(static_cast<uint32_t>(rank->rank()));
        for (int step = 0; step < Steps(3000); ++step) RunStep(rank, 10000, &own);  // a plain one
      },
      config);
}

// A rank's engine over the shared memory of one host.
void RunOverSharedMemory(int size, const std::function<void(Rank*)>& body) {
  InprocGroup group(size);
  InprocGroup launcher(size);
  testing::RunThreads(size, [&](int r) {
    const std::unique_ptr<World> world = launcher.OpenWorld(r);
    std::unique_ptr<Communicator> host;
    EXPECT_OK(world->OpenCommunicator(testing::AllOf(size), &host));
    Rank rank(&group, r, Config(), [&](std::unique_ptr<ControlPlane>) {
      std::unique_ptr<ControlPlane> control;
      EXPECT_OK(MakeShmControlPlane(host.get(), &control));
      return control;
    });
    body(&rank);
  });
}

// 2 of 2, 3 and 1, 5 of 1, and placed in turns.
const std::vector<std::vector<int>> kHosts = {
    {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2, 3, 4}, {0, 1, 2, 1, 0, 2}};

// Likewise on several hosts: hosts[r] is that of rank r.
void RunOverHosts(const std::vector<int>& hosts, const std::function<void(Rank*)>& body) {
  const int size = static_cast<int>(hosts.size());
  InprocGroup group(size);
  testing::RunThreads(size, [&](int r) {
    Rank rank(&group, r, Config(), [&](std::unique_ptr<ControlPlane> across) {
      return JoinHosts(&group, r, hosts, std::move(across));
    });
    body(&rank);
  });
}

TEST(DeviationsOverSharedMemory) {
  const std::vector<int> sizes = {2, 4, 8};
  testing::RunThreads(static_cast<int>(sizes.size()), [&](int i) {
    RunOverSharedMemory(sizes[static_cast<size_t>(i)],
                        [](Rank* rank) { RunProgram(rank, Steps(1000)); });
  });
}

// Hosts are sets of threads, which nothing wakes when another host writes.
TEST(DeviationsOverSeveralHosts) {
  testing::RunThreads(static_cast<int>(kHosts.size()), [](int i) {
    RunOverHosts(kHosts[static_cast<size_t>(i)], [](Rank* rank) { RunProgram(rank, Steps(500)); });
  });
}

// Ranks cancel what they like and leave in the middle: everything ends.
void CancelAndLeave(Rank* rank) {
  Random own(static_cast<uint32_t>(rank->rank()) + 40);
  for (int step = 0; step < 30; ++step) RunStep(rank, 10000, &own);  // a plain one
  for (int step = 0; step < 60; ++step) {
    auto call = AllReduce(rank, "c", 8, 1.0f, true);
    const bool cancel = Below(&own, 8) == 0;
    if (cancel) rank->engine()->Cancel(call->id);
    const Status status = call->Wait();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled ||
                status.code() == StatusCode::kAborted);
    if (status.ok()) EXPECT_EQ(call->out[0], static_cast<float>(rank->size()));
    if (status.code() == StatusCode::kCancelled) --step;  // anew: others may wait for it
  }
}

TEST(CancellingAndLeavingInALockedStep) {
  for (int size : {2, 5}) RunRanks(size, CancelAndLeave);
}
TEST(CancellingAndLeavingOverSeveralHosts) {
  for (const std::vector<int>& hosts : kHosts) RunOverHosts(hosts, CancelAndLeave);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
