// Averages by weights, through engines as threads: ranks that weigh otherwise from step to step,
// that have nothing, and that have joined; and what a rank that joins tells the others.
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/engine/engine.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

Status Agree(Rank* rank, Request request, int64_t* number) {
  Call call;
  Entry entry;
  entry.request = std::move(request);
  entry.EditExtras()->number = [number](int64_t n) { *number = n; };
  entry.done = [&call](const Status& s) { call.promise.set_value(s); };
  rank->engine()->Submit(std::move(entry));
  return call.Wait();
}

int64_t Join(Rank* rank, int32_t set = 0, bool stops = false) {
  Request request;
  request.key = {set, "tfhvd.join"};
  request.kind = Collective::kJoin;
  request.stops = stops;
  int64_t last = -1;
  EXPECT_OK(Agree(rank, std::move(request), &last));
  return last;
}

std::unique_ptr<Call> Average(Rank* rank, const std::string& name, size_t n, float value,
                              int64_t weight, int32_t set = 0) {
  auto call = std::make_unique<Call>();
  call->in.assign(n, value);
  call->out.assign(n, -1.0f);
  Entry entry = EntryFor(call.get(), Collective::kAllReduce, name, {static_cast<int64_t>(n)});
  entry.request.Edit()->key.process_set = set;
  entry.request.Edit()->reduction.op = ReduceOp::kAverage;
  entry.request.Edit()->weight = weight;
  rank->engine()->Submit(std::move(entry));
  return call;
}

bool AllClose(const std::vector<float>& v, double x) {
  for (float y : v) {
    if (!(std::abs(y - x) <= 1e-5 * (1.0 + std::abs(x)))) return false;
  }
  return true;
}

// The weights of a step, alike on every rank: mostly as in the step before.
class Weights {
 public:
  explicit Weights(int size) : random_(static_cast<unsigned>(size)), now_(size, 32) {}

  const std::vector<int64_t>& Next() {
    const unsigned kind = random_() % 8;
    if (kind == 0) now_[random_() % now_.size()] = static_cast<int64_t>(random_() % 40);
    if (kind == 1) now_.assign(now_.size(), 32);
    return now_;
  }

 private:
  std::mt19937 random_;
  std::vector<int64_t> now_;
};

TEST(FollowTheWeightsOfEachStep) {
  for (int size : {1, 2, 3, 5}) {
    RunRanks(size, [size](Rank* rank) {
      Weights weights(size);
      for (int step = 0; step < (testing::kThreadSanitizer ? 30 : 200); ++step) {
        const std::vector<int64_t>& of_ranks = weights.Next();
        double sum = 0.0;
        double total = 0.0;
        for (int r = 0; r < size; ++r) {
          sum += static_cast<double>(of_ranks[r]);
          total += static_cast<double>(of_ranks[r]) * (r + 1);
        }
        // What a rank without samples has computed of them is no number.
        const int64_t own = of_ranks[rank->rank()];
        const float value = own > 0 ? static_cast<float>(rank->rank() + 1)
                                    : std::numeric_limits<float>::quiet_NaN();
        std::vector<std::unique_ptr<Call>> calls;
        calls.push_back(Average(rank, "small", 3, value, own));
        calls.push_back(Average(rank, "also", 5, value, own));
        calls.push_back(Average(rank, "big", 300000, value, own));
        for (const auto& call : calls) {
          EXPECT_OK(call->Wait());
          EXPECT_TRUE(AllClose(call->out, sum > 0.0 ? total / sum : 0.0));
        }
      }
    });
  }
}

TEST(EqualWeightsAreAPlainAverageToTheBit) {
  RunRanks(3, [](Rank* rank) {
    const float value = 0.1f + static_cast<float>(rank->rank()) / 3.0f;
    auto weighted = Average(rank, "weighted", 7, value, 20);
    auto plain = Average(rank, "plain", 7, value, kUnweighted);
    EXPECT_OK(weighted->Wait());
    EXPECT_OK(plain->Wait());
    EXPECT_TRUE(weighted->out == plain->out);
  });
}

TEST(RanksThatHaveJoinedWeighNothing) {
  for (int size = 1; size <= 6; ++size) {
    RunRanks(size, [size](Rank* rank) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (int step = 0; step <= rank->rank(); ++step) {
          double sum = 0.0;
          double total = 0.0;
          for (int r = step; r < size; ++r) {
            sum += 10 + r;
            total += (10.0 + r) * r;
          }
          const auto value = static_cast<float>(rank->rank());
          auto small = Average(rank, "small", 3, value, 10 + rank->rank());
          auto big = Average(rank, "big", 300000, value, 10 + rank->rank());
          EXPECT_OK(small->Wait());
          EXPECT_OK(big->Wait());
          EXPECT_TRUE(AllClose(small->out, total / sum));
          EXPECT_TRUE(AllClose(big->out, total / sum));
        }
        EXPECT_EQ(Join(rank), size - 1);
      }
    });
  }
}

TEST(SomeRanksWithoutAWeightAreRefused) {
  RunRanks(2, [](Rank* rank) {
    auto call = Average(rank, "x", 3, 1.0f, rank->rank() == 0 ? 5 : kUnweighted);
    EXPECT_ERROR(call->Wait(), StatusCode::kInvalidArgument,
                 "Mismatched weights in allreduce 'x'. Received: rank 0: 5; rank 1: none.");
  });
}

TEST(JoiningASetConcernsThatSetAlone) {
  RunRanks(4, [](Rank* rank) {
    Request add;
    add.key.name = "tfhvd.process_sets";
    add.kind = Collective::kAddProcessSet;
    int64_t ids[2];
    for (int s : {0, 1}) {
      add.members = {s, s + 2};
      EXPECT_OK(Agree(rank, add, &ids[s]));
    }
    const auto set = static_cast<int32_t>(ids[rank->rank() % 2]);
    const int low = rank->rank() % 2;
    for (int epoch = 0; epoch < 20; ++epoch) {
      // Ranks 0 and 1 have one step, 2 and 3 have several: more in the second set.
      const int steps = rank->rank() < 2 ? 1 : 2 + 3 * low;
      for (int step = 0; step < steps; ++step) {
        auto call = Average(rank, "x", 4, static_cast<float>(rank->rank()), 8, set);
        EXPECT_OK(call->Wait());
        EXPECT_TRUE(AllClose(call->out, step == 0 ? low + 1.0 : low + 2.0));
      }
      EXPECT_EQ(Join(rank, set), static_cast<int64_t>(low + 2));
      // All four are waited for in the set of all.
      auto all = Average(rank, "all", 2, static_cast<float>(rank->rank()), kUnweighted);
      EXPECT_OK(all->Wait());
      EXPECT_TRUE(AllClose(all->out, 1.5));
    }
  });
}

TEST(OneThatJoinsCanAskTheOthersToStop) {
  for (int size : {2, 3, 5}) {
    RunRanks(size, [size](Rank* rank) {
      for (int epoch = 0; epoch < 10; ++epoch) {
        const bool stops = epoch % 2 == 0;
        const int who = epoch % size;
        int step = 0;
        while (step < 20) {
          if (rank->rank() == who && step == 5) break;
          EXPECT_OK(Average(rank, "a", 3, 1.0f, 4)->Wait());
          EXPECT_OK(Average(rank, "b", 3, 1.0f, 4)->Wait());
          ++step;
          if (rank->engine()->stop_asked(0)) break;
        }
        EXPECT_EQ(step, rank->rank() == who ? 5 : stops ? 6 : 20);
        Join(rank, 0, stops && rank->rank() == who);
        EXPECT_TRUE(!rank->engine()->stop_asked(0));
      }
    });
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
