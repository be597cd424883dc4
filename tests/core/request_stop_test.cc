// A rank that asks all to stop: they do so after the same step, whatever their pace, also where the
// step is locked.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/engine.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr int kSteps = 2000;

// Trains until all stop; how many steps that were. `who` asks after so many of its own, from a
// thread beside the program, or before a step.
int StepsOf(Rank* rank, int who, int after, bool beside) {
  std::mt19937 pace(static_cast<unsigned>(rank->rank() * 7 + after));
  std::thread asks;
  int step = 0;
  while (step < kSteps && !rank->engine()->stop_requested(0)) {
    if (rank->rank() == who && step == after) {
      if (beside) {
        asks = std::thread([rank] { rank->engine()->RequestStop(); });
      } else {
        rank->engine()->RequestStop();
      }
    }
    std::vector<std::unique_ptr<Call>> calls;
    for (const char* name : {"a", "b", "c", "d"}) {
      if (pace() % 8 == 0) std::this_thread::yield();
      calls.push_back(AllReduce(rank, name, 3, 1.0f));
    }
    for (auto& call : calls) {
      EXPECT_OK(call->Wait());
      EXPECT_TRUE(AllEqual(call->out, static_cast<float>(rank->size())));
    }
    ++step;
  }
  if (asks.joinable()) asks.join();
  return step;
}

TEST(AllStopAfterTheSameStep) {
  for (int size : {1, 2, 3, 5}) {
    for (int64_t capacity : {0, 1024}) {  // without numbers no step is locked
      for (int after : {0, 1, 2, 3, 4, 7, 60, 61, 200}) {
        Config config;
        config.cache_capacity = capacity;
        const bool beside = after % 2 == 0;
        std::vector<int> steps(static_cast<size_t>(size));
        const auto train = [&, after, size](Rank* rank) {
          steps[static_cast<size_t>(rank->rank())] = StepsOf(rank, after % size, after, beside);
        };
        RunRanks(size, train, config);
        EXPECT_EQ(std::count(steps.begin(), steps.end(), steps[0]), size);
        EXPECT_TRUE(steps[0] > after && steps[0] < kSteps);
        if (!beside) EXPECT_EQ(steps[0], after + 1);
      }
    }
  }
}

// A rank that has joined cannot stop with the others: they stop where it is there again.
TEST(NotWhileOneHasJoined) {
  RunRanks(3, [](Rank* rank) {
    const int own = rank->rank() == 2 ? 2 : 6;
    for (int step = 0; step < own; ++step) {
      if (rank->rank() == 1 && step == 3) rank->engine()->RequestStop();
      auto call = AllReduce(rank, "a", 3, 1.0f);
      EXPECT_OK(call->Wait());
      EXPECT_TRUE(!rank->engine()->stop_requested(0));
    }
    int64_t last = -1;
    EXPECT_OK(Join(rank, &last));
    EXPECT_TRUE(!rank->engine()->stop_requested(0));
    auto call = AllReduce(rank, "b", 3, 1.0f);
    EXPECT_OK(call->Wait());
    EXPECT_TRUE(rank->engine()->stop_requested(0));
    EXPECT_TRUE(!rank->engine()->stop_asked(0));
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
