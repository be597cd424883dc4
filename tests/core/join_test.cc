// Ranks that run out of data and join, through engines as threads.
#include <future>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

std::unique_ptr<Call> Submit(Rank* rank, Collective kind, const std::string& name, int64_t n,
                             float value, int root = 0, ReduceOp op = ReduceOp::kSum,
                             double prescale = 1.0) {
  auto call = std::make_unique<Call>();
  call->in.assign(static_cast<size_t>(n), value);
  call->out.assign(static_cast<size_t>(n), -1.0f);
  Entry entry = EntryFor(call.get(), kind, name, {n});
  entry.request.Edit()->root = root;
  entry.request.Edit()->reduction = {op, prescale, 1.0};
  rank->engine()->Submit(std::move(entry));
  return call;
}

TEST(RanksWithFewerStepsBringZeros) {
  for (int size = 1; size <= 8; ++size) {
    RunRanks(size, [size](Rank* rank) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        // Rank r has r + 1 steps: in step s ranks s .. size - 1 are there.
        for (int step = 0; step <= rank->rank(); ++step) {
          auto one = Submit(rank, Collective::kAllReduce, "one", 3, 1.0f);
          auto big = Submit(rank, Collective::kAllReduce, "big", 300000, 2.0f);
          auto gather = Submit(rank, Collective::kAllGather, "gather", rank->rank() % 2 + 1,
                               static_cast<float>(rank->rank()));
          auto also = Submit(rank, Collective::kAllGather, "also", 1,
                             static_cast<float>(100 + rank->rank()));
          EXPECT_OK(one->Wait());
          EXPECT_OK(big->Wait());
          EXPECT_OK(gather->Wait());
          EXPECT_OK(also->Wait());
          const float there = static_cast<float>(size - step);
          EXPECT_TRUE(AllEqual(one->out, there));
          EXPECT_TRUE(AllEqual(big->out, 2.0f * there));
          std::vector<float> gathered;
          std::vector<float> also_gathered;
          for (int r = step; r < size; ++r) {
            gathered.insert(gathered.end(), static_cast<size_t>(r % 2 + 1), static_cast<float>(r));
            also_gathered.push_back(static_cast<float>(100 + r));
          }
          EXPECT_TRUE(gather->out == gathered);
          EXPECT_TRUE(also->out == also_gathered);
        }
        int64_t last = -1;
        EXPECT_OK(Join(rank, &last));
        EXPECT_EQ(last, size - 1);
      }
    });
  }
}

TEST(AtAnyMomentForThousandsOfSteps) {
  for (int size : {2, 3, 5, 8}) {
    for (int64_t capacity : {0, 3, 1024}) {
      Config config;
      config.cache_capacity = capacity;
      RunRanks(
          size,
          [size](Rank* rank) {
            std::mt19937 common(static_cast<unsigned>(size));
            std::mt19937 own(static_cast<unsigned>(rank->rank()));
            for (int epoch = 0; epoch < 40; ++epoch) {
              std::vector<int> steps;
              for (int r = 0; r < size; ++r) steps.push_back(static_cast<int>(common() % 12));
              for (int step = 0; step < steps[rank->rank()]; ++step) {
                int there = 0;
                for (int s : steps) there += s > step ? 1 : 0;
                std::vector<std::unique_ptr<Call>> calls(4);
                for (size_t i = 0; i < 4; ++i) {
                  const size_t at = (i + own() % 4) % 4;
                  const size_t free = calls[at] == nullptr ? at : i;
                  size_t slot = free;
                  while (calls[slot] != nullptr) slot = (slot + 1) % 4;
                  calls[slot] = Submit(rank, Collective::kAllReduce, "g" + std::to_string(slot),
                                       static_cast<int64_t>(slot * 9 + 1), 1.0f);
                }
                for (auto& call : calls) {
                  EXPECT_OK(call->Wait());
                  EXPECT_TRUE(AllEqual(call->out, static_cast<float>(there)));
                }
              }
              int64_t last = -1;
              EXPECT_OK(Join(rank, &last));
              EXPECT_TRUE(last >= 0 && last < size);
            }
          },
          config);
    }
  }
}

// What was submitted before is not waited for.
TEST(WithTensorsStillUnderWay) {
  RunRanks(3, [](Rank* rank) {
    for (int epoch = 0; epoch < 50; ++epoch) {
      std::vector<std::unique_ptr<Call>> calls;
      for (int i = 0; i <= 2 * rank->rank(); ++i) {
        calls.push_back(Submit(rank, Collective::kAllReduce, "x" + std::to_string(i), 10, 1.0f));
      }
      int64_t last = -1;
      EXPECT_OK(Join(rank, &last));
      for (size_t i = 0; i < calls.size(); ++i) {
        EXPECT_OK(calls[i]->Wait());
        EXPECT_TRUE(AllEqual(calls[i]->out, i == 0 ? 3.0f : i < 3 ? 2.0f : 1.0f));
      }
    }
  });
}

// One tensor alone and in place, and small ones that are fused.
TEST(ReductionsAreOverWhoIsThere) {
  for (int size : {2, 3, 5}) {
    RunRanks(size, [size](Rank* rank) {
      const auto mine = static_cast<float>(rank->rank() + 2);
      for (int step = 0; step <= rank->rank(); ++step) {
        std::vector<std::unique_ptr<Call>> calls;
        float product = 1.0f;
        for (int r = step; r < size; ++r) product *= static_cast<float>(r + 2);
        const float least = static_cast<float>(step + 2), most = static_cast<float>(size + 1);
        const std::vector<std::pair<ReduceOp, float>> cases = {
            {ReduceOp::kMin, least}, {ReduceOp::kMax, most}, {ReduceOp::kProduct, product}};
        for (const auto& [op, expected] : cases) {
          for (int64_t n : {2, 3, 300000}) {
            const std::string name = std::string(ReduceOpName(op)) + std::to_string(n);
            calls.push_back(Submit(rank, Collective::kAllReduce, name, n, mine, 0, op));
          }
        }
        // Parallel vectors are averaged, in pairs; that of a joined rank counts for nothing.
        calls.push_back(Submit(rank, Collective::kAdasum, "adasum", 5, 1.0f));
        for (size_t i = 0; i < calls.size(); ++i) {
          EXPECT_OK(calls[i]->Wait());
          EXPECT_TRUE(AllEqual(calls[i]->out, i < 9 ? cases[i / 3].second : 1.0f));
        }
      }
      int64_t last = -1;
      EXPECT_OK(Join(rank, &last));
    });
  }
}

TEST(WhatNeedsTheirDataFailsOnTheOthers) {
  RunRanks(3, [](Rank* rank) {
    int64_t last = -1;
    if (rank->rank() == 0) {
      EXPECT_OK(Join(rank, &last));
      return;
    }
    // Rank 0 may not have joined yet: then these wait for it.
    for (int step = 0; step < 5; ++step) {
      const auto invalid = StatusCode::kInvalidArgument;
      auto scatter = Submit(rank, Collective::kReduceScatter, "scatter", 4, 1.0f);
      EXPECT_ERROR(scatter->Wait(), invalid, "while ranks [0] have joined");
      auto exchange = Submit(rank, Collective::kAllToAll, "exchange", 3, 1.0f);
      EXPECT_ERROR(exchange->Wait(), invalid, "Received: alltoall");
      auto from_0 = Submit(rank, Collective::kBroadcast, "from0", 4, 1.0f, 0);
      EXPECT_ERROR(from_0->Wait(), invalid, "Expected: a root that has not joined");
      auto scaled =
          Submit(rank, Collective::kAllReduce, "scaled", 4, 1.0f, 0, ReduceOp::kMin, -1.0);
      EXPECT_ERROR(scaled->Wait(), invalid, "Received: Min, prescale_factor=-1. Expected: no pre");
      auto from_2 =
          Submit(rank, Collective::kBroadcast, "from2", 4, static_cast<float>(rank->rank()), 2);
      EXPECT_OK(from_2->Wait());
      EXPECT_TRUE(AllEqual(from_2->out, 2.0f));
      auto good = Submit(rank, Collective::kAllReduce, "good", 4, 1.0f);
      EXPECT_OK(good->Wait());
      EXPECT_TRUE(AllEqual(good->out, 2.0f));
    }
    EXPECT_OK(Join(rank, &last));
  });
}

TEST(ARankThatLeavesEndsTheWaitOfTheJoined) {
  RunRanks(3, [](Rank* rank) {
    EXPECT_OK(Submit(rank, Collective::kAllReduce, "warm", 3, 1.0f)->Wait());
    if (rank->rank() == 1) {
      rank->engine()->Leave("MemoryError");
      EXPECT_TRUE(rank->engine()->WaitUntilOver(60.0));
      return;
    }
    int64_t last = -1;
    EXPECT_ERROR(Join(rank, &last), StatusCode::kAborted, "MemoryError");
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
