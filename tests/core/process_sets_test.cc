// Process sets, through engines as threads: made and removed by all ranks at one place in the order
// of everything, overlapping, used in any order.
#include <algorithm>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/engine/engine.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

// An allreduce of `n` times this rank's number.
std::unique_ptr<Call> Reduce(Rank* rank, int32_t set, const std::string& name, size_t n) {
  auto call = std::make_unique<Call>();
  call->in.assign(n, static_cast<float>(rank->rank()));
  call->out.assign(n, -1.0f);
  Entry entry = EntryFor(call.get(), Collective::kAllReduce, name, {static_cast<int64_t>(n)});
  entry.request.Edit()->key.process_set = set;
  call->id = rank->engine()->Submit(std::move(entry));
  return call;
}

// Ranks that leave early would end what the others still do.
void WaitForAll(Rank* rank) { EXPECT_OK(Reduce(rank, 0, "all", 1)->Wait()); }

float SumOf(const std::vector<int64_t>& ranks) {
  float sum = 0;
  for (int64_t r : ranks) sum += static_cast<float>(r);
  return sum;
}

bool Contains(const std::vector<int64_t>& members, int rank) {
  return std::find(members.begin(), members.end(), rank) != members.end();
}

// Every nonempty set of ranks but all of them.
std::vector<std::vector<int64_t>> SetsOf(int size) {
  std::vector<std::vector<int64_t>> sets;
  for (int bits = 1; bits < (1 << size) - 1; ++bits) {
    std::vector<int64_t> members;
    for (int r = 0; r < size; ++r) {
      if ((bits >> r & 1) != 0) members.push_back(r);
    }
    sets.push_back(std::move(members));
  }
  return sets;
}

TEST(NoSetHasTheNumberOfOneOfAnotherGeneration) {
  ProcessSetTable first(3);
  EXPECT_EQ(first.NextId(), 1);
  first.Put(1, {0, 1});
  ProcessSetTable later(2, 1);
  EXPECT_EQ(*later.Find(0), (std::vector<int>{0, 1}));
  EXPECT_TRUE(later.NextId() > first.NextId());
  EXPECT_TRUE(later.Find(1) == nullptr);
  EXPECT_EQ(later.WhyMissing(1).code(), StatusCode::kAborted);
  EXPECT_EQ(first.WhyMissing(2).code(), StatusCode::kInvalidArgument);
  const int32_t again = later.NextId();
  later.Put(again, {1});
  later.Remove(again);
  EXPECT_EQ(later.NextId(), again + 1);
  EXPECT_EQ(later.WhyMissing(again).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ProcessSetTable(2, 2).WhyMissing(again).code(), StatusCode::kAborted);
  EXPECT_EQ(ProcessSetTable(2, (1 << 15) - 1).WhyMissing(again).code(), StatusCode::kAborted);
  EXPECT_EQ(ProcessSetTable(2, 1 << 20).WhyMissing(again).code(), StatusCode::kAborted);
}

TEST(OverlappingSetsInAnyOrder) {
  for (int size : {2, 3, 4}) {
    RunRanks(size, [size](Rank* rank) {
      const auto sets = SetsOf(size);
      std::vector<int32_t> ids = {0};
      for (const auto& members : sets) ids.push_back(Added(rank, members));
      for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<int32_t>(i));
      std::mt19937 random(static_cast<unsigned>(rank->rank()));
      for (int step = 0; step < 20; ++step) {
        std::vector<size_t> order;
        for (size_t s = 0; s < ids.size(); ++s) {
          if (s == 0 || Contains(sets[s - 1], rank->rank())) order.insert(order.end(), 3, s);
        }
        std::shuffle(order.begin(), order.end(), random);
        std::vector<int> used(ids.size(), 0);
        std::vector<std::pair<size_t, std::unique_ptr<Call>>> calls;
        for (size_t s : order) {
          const std::string name = "x" + std::to_string(used[s]++);  // the same in all sets
          calls.emplace_back(s, Reduce(rank, ids[s], name, 7 + s));
        }
        for (auto& [s, call] : calls) {
          EXPECT_OK(call->Wait());
          EXPECT_TRUE(AllEqual(call->out, s == 0 ? SumOfRanks(size) : SumOf(sets[s - 1])));
        }
      }
    });
  }
}

TEST(RootsAndPartsAreThoseOfTheSet) {
  RunRanks(4, [](Rank* rank) {
    const std::vector<int64_t> members = {1, 3};
    const int32_t id = Added(rank, members);
    if (!Contains(members, rank->rank())) return WaitForAll(rank);
    for (int root : {1, 3}) {
      Call call;
      call.in.assign(5, static_cast<float>(rank->rank()));
      call.out.assign(5, -1.0f);
      Entry entry = EntryFor(&call, Collective::kBroadcast, "b", {5});
      entry.request.Edit()->key.process_set = id;
      entry.request.Edit()->root = root;
      rank->engine()->Submit(std::move(entry));
      EXPECT_OK(call.Wait());
      EXPECT_TRUE(AllEqual(call.out, static_cast<float>(root)));
    }
    for (int step = 0; step < 3; ++step) {  // the third time by number, the lengths changed
      Call call;
      const int64_t rows = step < 2 ? rank->rank() : rank->rank() + 1;
      call.in.assign(static_cast<size_t>(rows), static_cast<float>(rank->rank()));
      Entry entry = EntryFor(&call, Collective::kAllGather, "g", {rows});
      entry.request.Edit()->key.process_set = id;
      rank->engine()->Submit(std::move(entry));
      EXPECT_OK(call.Wait());
      std::vector<float> expected(step < 2 ? 1 : 2, 1.0f);
      expected.insert(expected.end(), step < 2 ? 3 : 4, 3.0f);
      EXPECT_TRUE(call.out == expected);
    }
    Call wrong;
    wrong.in.assign(2, 1.0f);
    wrong.out.assign(2, -1.0f);
    Entry entry = EntryFor(&wrong, Collective::kBroadcast, "b", {2});
    entry.request.Edit()->key.process_set = id;
    entry.request.Edit()->root = 2;
    rank->engine()->Submit(std::move(entry));
    const Status status = wrong.Wait();
    EXPECT_ERROR(status, StatusCode::kInvalidArgument, "Received: root_rank=2");
    EXPECT_ERROR(status, StatusCode::kInvalidArgument, "one of the ranks [1, 3]");
    WaitForAll(rank);
  });
}

TEST(SetsThatCannotBeMadeFailOnEveryRank) {
  RunRanks(3, [](Rank* rank) {
    int64_t number = -1;
    const auto add = Collective::kAddProcessSet;
    const auto remove = Collective::kRemoveProcessSet;
    const auto invalid = StatusCode::kInvalidArgument;
    EXPECT_ERROR(AgreeOn(rank, add, {0, 3}, &number), invalid, "Expected: different ranks from 0");
    EXPECT_ERROR(AgreeOn(rank, add, {}, &number), invalid, "at least one");
    EXPECT_ERROR(AgreeOn(rank, add, {1, 1}, &number), invalid, "ranks [1, 1]");
    EXPECT_ERROR(AgreeOn(rank, add, {0, 1, 2}, &number), invalid,
                 "already a process set of these ranks, with number 0");
    EXPECT_EQ(Added(rank, {0, 2}), 1);
    EXPECT_ERROR(AgreeOn(rank, add, {0, 2}, &number), invalid,
                 "already a process set of these ranks, with number 1");
    EXPECT_ERROR(AgreeOn(rank, remove, {1}, &number), invalid, "there is none of these ranks");
    EXPECT_ERROR(AgreeOn(rank, remove, {0, 1, 2}, &number), invalid, "all ranks cannot be removed");
    const std::vector<int64_t> mine = {rank->rank()};
    const Status mixed = AgreeOn(rank, add, mine, &number);
    EXPECT_ERROR(mixed, invalid, "Mismatched ranks");
    EXPECT_ERROR(mixed, invalid, "rank 0: [0]; rank 1: [1]; rank 2: [2]");
    EXPECT_EQ(Added(rank, {1}), 2);
  });
}

TEST(CallsFromOutsideAndOfUnknownSetsFailAtOnce) {
  RunRanks(2, [](Rank* rank) {
    const int32_t id = Added(rank, {1});
    const Status unknown = Reduce(rank, 99, "x", 1)->Wait();
    EXPECT_ERROR(unknown, StatusCode::kInvalidArgument, "Received: process set 99");
    const Status status = Reduce(rank, id, "x", 1)->Wait();
    if (rank->rank() == 1) {
      EXPECT_OK(status);
    } else {
      EXPECT_ERROR(status, StatusCode::kInvalidArgument, "this rank is not in the process set");
    }
    WaitForAll(rank);
  });
}

// Sets come and go while tensors of others are under way; what is left open of a set that goes
// fails.
TEST(SetsComeAndGoAtRandom) {
  for (int size : {2, 4}) {
    for (int64_t capacity : {0, 4, 1024}) {
      Config config;
      config.cache_capacity = capacity;
      RunRanks(
          size,
          [size](Rank* rank) {
            std::mt19937 common(7);  // the same on all ranks
            const auto sets = SetsOf(size);
            for (int step = 0; step < 60; ++step) {
              const auto& members = sets[common() % sets.size()];
              auto world = Reduce(rank, 0, "world" + std::to_string(step % 5), 3);
              const int32_t id = Added(rank, members);
              std::vector<std::unique_ptr<Call>> calls;
              const bool in = Contains(members, rank->rank());
              for (int i = 0; in && i < 4; ++i) {
                calls.push_back(Reduce(rank, id, "x" + std::to_string(i), 5));
              }
              const bool hasty = common() % 2 == 0;
              for (auto& call : calls) {
                if (hasty) break;
                EXPECT_OK(call->Wait());
                EXPECT_TRUE(AllEqual(call->out, SumOf(members)));
              }
              Remove(rank, members);
              for (auto& call : calls) {
                if (!hasty) break;
                const Status status = call->Wait();
                if (status.ok()) {
                  EXPECT_TRUE(AllEqual(call->out, SumOf(members)));
                } else {
                  EXPECT_ERROR(status, StatusCode::kInvalidArgument, "was removed");
                }
              }
              EXPECT_OK(world->Wait());
              EXPECT_TRUE(AllEqual(world->out, SumOfRanks(size)));
            }
          },
          config);
    }
  }
}

TEST(AMismatchInASetConcernsItsRanksOnly) {
  RunRanks(3, [](Rank* rank) {
    const int32_t id = Added(rank, {0, 2});
    for (int step = 0; step < 20; ++step) {
      if (rank->rank() != 1) {
        const Status status = Reduce(rank, id, "x", rank->rank() == 0 ? 2 : 3)->Wait();
        EXPECT_ERROR(status, StatusCode::kInvalidArgument,
                     "rank 0: float32[2]; rank 2: float32[3]");
      }
      auto all = Reduce(rank, 0, "y", 4);
      EXPECT_OK(all->Wait());
      EXPECT_TRUE(AllEqual(all->out, 3.0f));
    }
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
