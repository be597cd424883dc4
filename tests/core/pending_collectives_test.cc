// Collectives of compiled functions, between their start and their end. Ranks are threads.
#include "cc/process/pending_collectives.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Id = PendingCollectives::Id;

// One rank's compiled functions.
class Compiled {
 public:
  explicit Compiled(Rank* rank) : rank_(rank), engine_(rank->engine(), [](Engine*) {}) {}

  PendingCollectives* pending() { return &pending_; }

  // Begins an allreduce of `memory` in its place.
  Id Reduce(PendingCollectives::Run run, const std::string& name, std::vector<float>* memory) {
    Entry entry = EntryOf(Collective::kAllReduce, name, *memory);
    return pending_.Start(run, engine_, std::move(entry), {{memory->data(), ShapeOf(*memory)}});
  }

  // Begins an allgather, whose result has as many rows of each rank as it has room for.
  Id Gather(PendingCollectives::Run run, const std::string& name, const std::vector<float>& rows,
            std::vector<float>* result) {
    Entry entry = EntryOf(Collective::kAllGather, name, rows);
    result->assign(rows.size() * static_cast<size_t>(rank_->size()), -1.0f);
    return pending_.Start(run, engine_, std::move(entry), {{result->data(), ShapeOf(*result)}});
  }

  // Begins an allgather of several tensors, which are agreed as one.
  Id GatherGroup(PendingCollectives::Run run, const std::string& name,
                 const std::vector<std::vector<float>>& rows,
                 std::vector<std::vector<float>>* results) {
    Entry entry = EntryOf(Collective::kAllGather, name, rows[0]);
    entry.request.Edit()->tensors.clear();
    entry.inputs.clear();
    std::vector<PendingCollectives::Result> places;
    results->resize(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      entry.request.Edit()->tensors.push_back({DType::kFloat32, ShapeOf(rows[i])});
      entry.inputs.push_back(rows[i].data());
      (*results)[i].assign(rows[i].size() * static_cast<size_t>(rank_->size()), -1.0f);
      places.push_back({(*results)[i].data(), ShapeOf((*results)[i])});
    }
    return pending_.Start(run, engine_, std::move(entry), std::move(places));
  }

  Status Finish(const std::vector<Id>& ids, const std::vector<std::vector<float>*>& results) {
    std::vector<void*> places;
    for (std::vector<float>* result : results) places.push_back(result->data());
    return pending_.Finish(ids, places);
  }

  // Whether a collective in a run of its own gives the sum: the job continues.
  bool Continues(const std::string& name) {
    std::vector<float> x(3, static_cast<float>(rank_->rank()));
    const Id id = Reduce(pending_.Begin(), name, &x);
    return Finish({id}, {&x}).ok() && AllEqual(x, SumOfRanks(rank_->size()));
  }

 private:
  static Shape ShapeOf(const std::vector<float>& v) { return {static_cast<int64_t>(v.size())}; }

  static Entry EntryOf(Collective kind, const std::string& name, const std::vector<float>& input) {
    Entry entry;
    entry.request.Edit()->key.name = name;
    entry.request.Edit()->kind = kind;
    entry.request.Edit()->tensors.push_back({DType::kFloat32, ShapeOf(input)});
    entry.inputs.push_back(input.data());
    return entry;
  }

  Rank* rank_;
  std::shared_ptr<Engine> engine_;  // the rank's
  PendingCollectives pending_;
};

TEST(OneWaitForManyThatBeganInAnotherOrderOnEachRank) {
  for (int size : {1, 2, 4}) {
    RunRanks(size, [](Rank* rank) {
      Compiled compiled(rank);
      std::mt19937 random(static_cast<unsigned>(rank->rank()));
      for (int step = 0; step < 10; ++step) {
        const PendingCollectives::Run run = compiled.pending()->Begin();
        std::vector<std::vector<float>> x(50);
        std::vector<size_t> order(x.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        std::vector<Id> ids(x.size());
        std::vector<std::vector<float>*> results;
        for (size_t i : order) {
          x[i].assign(i, static_cast<float>(rank->rank() + step));
          ids[i] = compiled.Reduce(run, "x" + std::to_string(i), &x[i]);
        }
        for (auto& one : x) results.push_back(&one);
        EXPECT_TRUE(compiled.Finish(ids, results).ok());
        for (const auto& one : x) {
          EXPECT_TRUE(
              AllEqual(one, static_cast<float>(step * rank->size()) + SumOfRanks(rank->size())));
        }
        EXPECT_EQ(compiled.pending()->size(), size_t{0});
      }
    });
  }
}

TEST(RunsOfSeveralThreadsAtOnce) {
  RunRanks(2, [](Rank* rank) {
    Compiled compiled(rank);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int step = 0; step < 20; ++step) {
          EXPECT_TRUE(compiled.Continues("thread" + std::to_string(t)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(AnErrorEndsAllThatIsUnderWayAndTheJobGoesOn) {
  RunRanks(2, [](Rank* rank) {
    Compiled compiled(rank);
    for (int step = 0; step < 5; ++step) {
      const PendingCollectives::Run run = compiled.pending()->Begin();
      std::vector<float> odd(static_cast<size_t>(1 + rank->rank()), 1.0f);
      std::vector<float> alone(4, 1.0f);
      const Id id = compiled.Reduce(run, "odd", &odd);
      // The other rank never begins this one: only taking it back can end it.
      const Id never = compiled.Reduce(run, "of." + std::to_string(rank->rank()), &alone);
      const Status status = compiled.Finish({id}, {&odd});
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_TRUE(status.message().find("'odd'") != std::string::npos);
      EXPECT_EQ(compiled.pending()->size(), size_t{0});
      EXPECT_ERROR(compiled.Finish({never}, {&alone}), StatusCode::kInvalidArgument, "'odd'");
      EXPECT_TRUE(AllEqual(alone, 1.0f));  // nobody writes there any more
      const Id late = compiled.Reduce(run, "late", &alone);
      EXPECT_ERROR(compiled.Finish({late}, {&alone}), StatusCode::kInvalidArgument, "'odd'");
      EXPECT_TRUE(compiled.Continues("next"));
    }
  });
}

TEST(AFailureWhileOtherThreadsBegin) {
  RunRanks(2, [](Rank* rank) {
    Compiled compiled(rank);
    for (int step = 0; step < 20; ++step) {
      const PendingCollectives::Run run = compiled.pending()->Begin();
      std::vector<std::vector<float>> x(30, std::vector<float>(8, 1.0f));
      std::vector<Id> ids(x.size());
      // Names of this rank alone, so that each is over only when it has been taken back.
      std::thread other([&] {
        for (size_t i = 0; i < x.size(); ++i) {
          ids[i] = compiled.Reduce(
              run, "own." + std::to_string(rank->rank()) + "." + std::to_string(i), &x[i]);
        }
      });
      std::vector<float> odd(static_cast<size_t>(1 + rank->rank()), 1.0f);
      const Id id = compiled.Reduce(run, "odd", &odd);
      EXPECT_EQ(compiled.Finish({id}, {&odd}).code(), StatusCode::kInvalidArgument);
      other.join();
      for (size_t i = 0; i < x.size(); ++i) {
        EXPECT_ERROR(compiled.Finish({ids[i]}, {&x[i]}), StatusCode::kInvalidArgument, "'odd'");
      }
      EXPECT_EQ(compiled.pending()->size(), size_t{0});
      EXPECT_TRUE(compiled.Continues("next"));
    }
  });
}

// Nobody has asked for its end yet: the other rank may have, and be in the next execution.
TEST(WhatFailsTakesTheRestBackBeforeTheNextExecutionCanMeetIt) {
  RunRanks(2, [](Rank* rank) {
    Compiled compiled(rank);
    for (int step = 0; step < 20; ++step) {
      const PendingCollectives::Run run = compiled.pending()->Begin();
      std::vector<float> odd(static_cast<size_t>(1 + rank->rank()), 1.0f);
      std::vector<float> stale(4, 1000.0f);
      std::vector<float> fresh(4, 1.0f);
      Id rest = 0;
      if (rank->rank() == 0) rest = compiled.Reduce(run, "rest", &stale);
      const Id id = compiled.Reduce(run, "odd", &odd);
      if (rank->rank() == 1) {
        EXPECT_EQ(compiled.Finish({id}, {&odd}).code(), StatusCode::kInvalidArgument);
      }
      // Rank 1 goes on, while rank 0 has not asked.
      if (rank->rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_ERROR(compiled.Finish({rest}, {&stale}), StatusCode::kInvalidArgument, "'odd'");
        EXPECT_TRUE(AllEqual(stale, 1000.0f));
        const Id again = compiled.Reduce(compiled.pending()->Begin(), "rest", &fresh);
        EXPECT_OK(compiled.Finish({again}, {&fresh}));
      } else {
        const Id next = compiled.Reduce(compiled.pending()->Begin(), "rest", &fresh);
        EXPECT_OK(compiled.Finish({next}, {&fresh}));
      }
      EXPECT_TRUE(AllEqual(fresh, 2.0f));
    }
  });
}

TEST(OtherFirstDimensionsThanXlaExpectsAreAnErrorAndWriteNothingElsewhere) {
  RunRanks(2, [](Rank* rank) {
    Compiled compiled(rank);
    std::vector<float> rows(static_cast<size_t>(1 + rank->rank()), 2.0f), result;
    const PendingCollectives::Run run = compiled.pending()->Begin();
    const Id id = compiled.Gather(run, "uneven", rows, &result);
    const Status status = compiled.Finish({id}, {&result});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().find("XLA fixes shapes beforehand") != std::string::npos);
    EXPECT_TRUE(AllEqual(result, -1.0f));
    rows.assign(2, static_cast<float>(rank->rank()));
    const Id even = compiled.Gather(compiled.pending()->Begin(), "even", rows, &result);
    EXPECT_TRUE(compiled.Finish({even}, {&result}).ok());
    EXPECT_TRUE(result == std::vector<float>({0.0f, 0.0f, 1.0f, 1.0f}));
  });
}

TEST(EveryTensorOfAGroupHasMemoryOfItsOwnWhereFirstDimensionsDiffer) {
  RunRanks(2, [](Rank* rank) {
    Compiled compiled(rank);
    const auto n = static_cast<size_t>(100 + 100 * rank->rank());
    const std::vector<std::vector<float>> rows = {std::vector<float>(n, 1.0f),
                                                  std::vector<float>(10 * n, 2.0f)};
    std::vector<std::vector<float>> results;
    const Id id = compiled.GatherGroup(compiled.pending()->Begin(), "uneven", rows, &results);
    EXPECT_EQ(compiled.Finish({id}, {&results[0], &results[1]}).code(),
              StatusCode::kInvalidArgument);
    for (const auto& result : results) EXPECT_TRUE(AllEqual(result, -1.0f));
    EXPECT_TRUE(compiled.Continues("next"));
  });
}

// XLA expects rows of them.
TEST(RanksThatHaveJoinedBringRowsOfZerosToAnAllgather) {
  RunRanks(3, [](Rank* rank) {
    Compiled compiled(rank);
    int64_t last = -1;
    if (rank->rank() != 1) {
      const float own = static_cast<float>(rank->rank() + 1);
      const std::vector<std::vector<float>> rows = {{own, own}, {-own}};
      std::vector<std::vector<float>> results;
      const Id id = compiled.GatherGroup(compiled.pending()->Begin(), "rows", rows, &results);
      EXPECT_OK(compiled.Finish({id}, {&results[0], &results[1]}));
      EXPECT_TRUE(results[0] == std::vector<float>({1.0f, 1.0f, 0.0f, 0.0f, 3.0f, 3.0f}));
      EXPECT_TRUE(results[1] == std::vector<float>({-1.0f, 0.0f, -3.0f}));
    }
    EXPECT_OK(Join(rank, &last));
    EXPECT_TRUE(compiled.Continues("next"));
  });
}

TEST(ARankThatLeavesEndsTheWait) {
  RunRanks(3, [](Rank* rank) {
    Compiled compiled(rank);
    if (rank->rank() == 2) {
      rank->engine()->Leave("out of luck");
      return;
    }
    std::vector<float> x(4, 1.0f);
    const Id id = compiled.Reduce(compiled.pending()->Begin(), "wanted", &x);
    const Status status = compiled.Finish({id}, {&x});
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    for (const char* part : {"'wanted'", "rank 2", "out of luck"}) {
      EXPECT_TRUE(status.message().find(part) != std::string::npos);
    }
  });
}

TEST(MemoryThatMovedIsAnError) {
  RunRanks(1, [](Rank* rank) {
    Compiled compiled(rank);
    std::vector<float> x(4, 1.0f), elsewhere(4);
    const Id id = compiled.Reduce(compiled.pending()->Begin(), "x", &x);
    EXPECT_EQ(compiled.Finish({id}, {&elsewhere}).code(), StatusCode::kInternal);
    EXPECT_EQ(compiled.pending()->size(), size_t{0});
    EXPECT_TRUE(compiled.Continues("next"));
  });
}

TEST(WithoutAnEngineOrABeginning) {
  PendingCollectives pending;
  Entry entry;
  entry.request.Edit()->tensors.push_back({DType::kFloat32, {1}});
  float x = 0.0f;
  const Id id = pending.Start(pending.Begin(), nullptr, std::move(entry), {{&x, {1}}});
  EXPECT_EQ(pending.Finish({id}, {&x}).code(), StatusCode::kFailedPrecondition);
  PendingCollectives fresh;
  EXPECT_EQ(fresh.Finish({77}, {&x}).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
