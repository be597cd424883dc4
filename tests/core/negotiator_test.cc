// Several ranks' Negotiators over a control plane that delivers late: every rank must execute the
// same sequence, and what one rank pairs, all pair.
#include "cc/negotiate/negotiator.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/flow/codec.h"
#include "tests/core/fake_job.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

Config ConfigOf(int64_t capacity, double cycle_time = 0.0) {
  Config config;
  config.cache_capacity = capacity;
  config.cycle_time = cycle_time;
  config.stall_check = false;
  return config;
}

// Every rank submits the same collectives, each in an order of its own; a name again once its last
// is done.
void RunInAnyOrder(int size, int64_t capacity, uint32_t seed) {
  constexpr int kNames = 6;
  constexpr int kTimes = 12;
  Job job(size, ConfigOf(capacity, seed % 2 * 3.0), seed);
  std::vector<std::vector<int>> next(static_cast<size_t>(size), std::vector<int>(kNames, 0));
  std::vector<std::vector<EntryId>> last(static_cast<size_t>(size),
                                         std::vector<EntryId>(kNames, 0));
  for (int step = 0; step < 3000; ++step) {
    const auto r = static_cast<size_t>(Below(&job.random, size));
    const auto n = static_cast<size_t>(Below(&job.random, kNames));
    Player& rank = *job.ranks[r];
    const bool free = last[r][n] == 0 || rank.finished.count(last[r][n]) > 0;
    if (free && next[r][n] < kTimes) {
      const int tag = next[r][n]++;
      // Every third time another length, so that what was cached no longer fits.
      last[r][n] = rank.Submit("t" + std::to_string(n), tag, tag % 3 == 2 ? 5 : 4);
    }
    job.StepAny();
  }
  for (int more = 0; more < kTimes; ++more) {
    for (size_t r = 0; r < next.size(); ++r) {
      for (size_t n = 0; n < kNames; ++n) {
        if (next[r][n] == kTimes ||
            (last[r][n] != 0 && job.ranks[r]->finished.count(last[r][n]) == 0))
          continue;
        const int tag = next[r][n]++;
        last[r][n] = job.ranks[r]->Submit("t" + std::to_string(n), tag, tag % 3 == 2 ? 5 : 4);
      }
    }
    job.Settle();
  }
  job.ExpectEqualSequences();  // names and tags: the same occurrences meet
  job.ExpectNothingOpen();
  EXPECT_EQ(job.ranks[0]->executed.size(), size_t{kNames * kTimes});
  for (const auto& rank : job.ranks) EXPECT_EQ(rank->failed.size(), size_t{0});
}

TEST(AllRanksExecuteOneSequence) {
  for (uint32_t seed = 0; seed < testing::Sweep(40u); ++seed) {
    for (int64_t capacity : {0, 1, 2, 5, 1024}) {
      RunInAnyOrder(1 + static_cast<int>(seed % 5), capacity, seed);
    }
  }
}

// Anonymous entries of one name take their turn in the order of submission.
TEST(AnonymousOnesKeepTheirOrder) {
  for (uint32_t seed = 0; seed < testing::Sweep(60u); ++seed) {
    const int size = 1 + static_cast<int>(seed % 5);
    Job job(size, ConfigOf(seed % 3), seed);
    constexpr int kTimes = 40;
    std::vector<std::vector<int>> next(static_cast<size_t>(size), std::vector<int>(2, 0));
    for (int step = 0; step < 400 * size; ++step) {
      const auto r = static_cast<size_t>(Below(&job.random, size));
      const auto n = static_cast<size_t>(Below(&job.random, 2));
      if (next[r][n] < kTimes) {
        const int tag = next[r][n]++;
        job.ranks[r]->Submit("a" + std::to_string(n), tag, 1 + tag % 2, true);
      }
      job.StepAny();
    }
    for (size_t r = 0; r < next.size(); ++r) {
      for (size_t n = 0; n < 2; ++n) {
        while (next[r][n] < kTimes) {
          const int tag = next[r][n]++;
          job.ranks[r]->Submit("a" + std::to_string(n), tag, 1 + tag % 2, true);
        }
      }
    }
    job.Settle();
    job.ExpectEqualSequences();
    job.ExpectNothingOpen();
    int due[2] = {0, 0};
    for (const Event& e : job.ranks[0]->executed) EXPECT_EQ(e.tag, due[e.name[1] - '0']++);
    EXPECT_EQ(due[0] + due[1], 2 * kTimes);
  }
}

// As a framework does it: steps with the same names; in some of them one name does not fit between
// ranks. A rank that sees a failure takes back everything else of that step and goes on to the
// next. However late the messages, a tensor of one step must never meet another step's.
void RunFailingSteps(int size, int64_t capacity, uint32_t seed) {
  constexpr int kNames = 5;
  constexpr int kSteps = 25;
  Job job(size, ConfigOf(capacity), seed);
  struct Program {
    int step = -1;
    std::vector<int> order;  // names that are still to be submitted
    std::vector<EntryId> mine;
    bool failed = false;
  };
  std::vector<Program> programs(static_cast<size_t>(size));
  const auto bad_name = [&](int step) { return (step * 7 + static_cast<int>(seed)) % 9; };
  const auto advance = [&](size_t r) {
    Program& p = programs[r];
    Player& rank = *job.ranks[r];
    for (const Event& e : rank.fresh_failures) {
      if (e.tag == p.step && e.code == StatusCode::kInvalidArgument) p.failed = true;
    }
    rank.fresh_failures.clear();
    if (p.failed && !p.order.empty()) p.order.clear();
    if (p.failed) {
      for (EntryId id : p.mine) {
        if (rank.finished.count(id) == 0) rank.Cancel(id);
      }
    }
    if (!p.order.empty()) {
      const int n = p.order.back();
      p.order.pop_back();
      const bool odd = n == bad_name(p.step) && static_cast<int>(r) == size - 1;
      p.mine.push_back(rank.Submit("w" + std::to_string(n), p.step, odd ? 9 : 4));
      return;
    }
    // The step is over when everything of it is; a failed one need not wait for that.
    const bool over = std::all_of(p.mine.begin(), p.mine.end(),
                                  [&](EntryId id) { return rank.finished.count(id) > 0; });
    if ((over || p.failed) && p.step + 1 < kSteps) {
      ++p.step;
      p.failed = false;
      p.mine.clear();
      for (int n = 0; n < kNames; ++n) p.order.push_back(n);
      std::shuffle(p.order.begin(), p.order.end(), job.random);
    }
  };
  for (int i = 0; i < 4000 * size; ++i) {
    const auto r = static_cast<size_t>(Below(&job.random, size));
    // A rank sees failures as they complete, before its next Step.
    if (!job.ranks[r]->fresh_failures.empty() || Below(&job.random, 2) == 0) advance(r);
    job.StepOne(r);
  }
  for (int i = 0; i < 40 * kNames; ++i) {
    job.Settle();
    for (size_t r = 0; r < programs.size(); ++r) advance(r);
  }
  job.Settle();
  for (const Program& p : programs) EXPECT_EQ(p.step, kSteps - 1);
  job.ExpectEqualSequences();
  job.ExpectNothingOpen();
  for (const auto& rank : job.ranks) {
    for (const Event& e : rank->failed) {
      if (e.code == StatusCode::kCancelled) continue;
      EXPECT_TRUE(e.code == StatusCode::kInvalidArgument);
      EXPECT_EQ(e.name, "w" + std::to_string(bad_name(e.tag)));
    }
  }
}

TEST(StepsThatFailDoNotMixWithTheNext) {
  for (uint32_t seed = 0; seed < testing::Sweep(60u); ++seed) {
    for (int64_t capacity : {0, 2, 1024})
      RunFailingSteps(2 + static_cast<int>(seed % 4), capacity, seed);
  }
}

// An error and a collective that waits for others come in one agreement: a sign of life out of that
// wait is no confirmation of the error, which the coordinator waits for before it decides anything.
TEST(ASignOfLifeOutOfACollectiveConfirmsNothing) {
  for (const size_t waiting : {size_t{0}, size_t{1}}) {
    Job job(2, ConfigOf(1024), 1);
    for (auto& rank : job.ranks) rank->control.prompt = true;
    Player& one = *job.ranks[waiting];
    Player& other = *job.ranks[1 - waiting];
    one.Submit("announced before", 0, 1);
    one.Submit("bad", 0, 1);
    other.Submit("bad", 0, 2);
    for (Player* rank : {&one, &other}) rank->Submit("good", 0, 1);
    for (int i = 0; i < 4 && one.executed.empty(); ++i) {
      other.Step();
      one.Step();
    }
    ASSERT_EQ(one.failed.size(), size_t{1});
    ASSERT_EQ(one.executed.size(), size_t{1});
    EXPECT_OK(one.Wait(0.2));
    other.Submit("announced before", 0, 1);
    job.Settle();
    job.ExpectNothingOpen();
  }
}

// Cancels at any moment: what comes out is agreed by all or given back, and ends.
TEST(CancellationsAtAnyMomentEndEverything) {
  for (uint32_t seed = 0; seed < testing::Sweep(150u); ++seed) {
    const int size = 1 + static_cast<int>(seed % 5);
    Job job(size, ConfigOf(seed % 4), seed);
    std::vector<std::vector<EntryId>> ids(static_cast<size_t>(size));
    for (int step = 0; step < 1500; ++step) {
      const auto r = static_cast<size_t>(Below(&job.random, size));
      if (Below(&job.random, 3) == 0) {
        const int n = Below(&job.random, 4);
        const int64_t length = Below(&job.random, 12) == 0 ? 2 : 1;
        ids[r].push_back(job.ranks[r]->Submit("c" + std::to_string(n), n, length, true));
      }
      if (!ids[r].empty() && Below(&job.random, 4) == 0) {
        const size_t back = static_cast<size_t>(Below(&job.random, 4)) + 1;
        if (back <= ids[r].size()) job.ranks[r]->Cancel(ids[r][ids[r].size() - back]);
      }
      job.StepAny();
    }
    for (auto& rank : job.ranks) {
      for (EntryId id : ids[&rank - &job.ranks[0]]) rank->Cancel(id);
    }
    job.Settle();
    job.ExpectEqualSequences();
    job.ExpectNothingOpen();
  }
}

// Ranks leave one after the other, with entries in flight: all is completed or fails, and ends.
TEST(LeavingEndsEverything) {
  for (uint32_t seed = 0; seed < testing::Sweep(150u); ++seed) {
    const int size = 1 + static_cast<int>(seed % 5);
    Job job(size, ConfigOf(seed % 3), seed);
    std::vector<bool> left(static_cast<size_t>(size), false);
    std::vector<std::vector<EntryId>> ids(static_cast<size_t>(size));
    for (int step = 0; step < 1200; ++step) {
      const auto r = static_cast<size_t>(Below(&job.random, size));
      if (!left[r] && Below(&job.random, 2) == 0) {
        const int n = Below(&job.random, 4);
        const int64_t length = Below(&job.random, 12) == 0 ? 2 : 1;
        ids[r].push_back(job.ranks[r]->Submit("l" + std::to_string(n), n, length, true));
      }
      if (!ids[r].empty() && Below(&job.random, 6) == 0) job.ranks[r]->Cancel(ids[r].back());
      if (!left[r] && step > 600 && Below(&job.random, 100) == 0) {
        left[r] = true;
        job.ranks[r]->consensus.Leave("");
      }
      job.StepAny();
    }
    job.Settle();
    // Once one rank has left, nothing waits any more, whether or not the others leave too.
    if (std::find(left.begin(), left.end(), true) != left.end()) job.ExpectNothingOpen();
    for (size_t r = 0; r < left.size(); ++r) {
      if (!left[r]) job.ranks[r]->consensus.Leave("");
    }
    job.Settle();
    job.ExpectEqualSequences();
    job.ExpectNothingOpen();
    for (auto& rank : job.ranks) EXPECT_TRUE(rank->consensus.over());
  }
}

TEST(NothingIsSentWhereNothingIsNew) {
  Job job(3, ConfigOf(1024), 1);
  job.Settle();
  for (int i = 0; i < 100; ++i) {
    for (auto& rank : job.ranks) rank->Step();
    EXPECT_TRUE(job.network.Quiet());
  }
}

TEST(ANameTwiceAtOnceFailsOnlyTheSecond) {
  Job job(2, ConfigOf(1024), 1);
  for (auto& rank : job.ranks) rank->Submit("x", 0, 4);
  job.ranks[1]->Submit("x", 1, 4);
  ASSERT_EQ(job.ranks[1]->failed.size(), size_t{1});
  EXPECT_EQ(job.ranks[1]->failed[0].tag, 1);
  EXPECT_EQ(job.ranks[1]->failed[0].code, StatusCode::kInvalidArgument);
  job.Settle();
  job.ExpectEqualSequences();
  job.ExpectNothingOpen();
  EXPECT_EQ(job.ranks[0]->executed.size(), size_t{1});
}

TEST(BehindAWithdrawnNameThereIsRoomForOne) {
  Job job(2, ConfigOf(1024), 1);
  Player& rank = *job.ranks[1];
  const EntryId id = rank.Submit("x", 0, 4);
  rank.Step();  // announced
  rank.Cancel(id);
  rank.Submit("x", 1, 4);
  EXPECT_EQ(rank.failed.size(), size_t{0});
  rank.Submit("x", 2, 4);
  ASSERT_EQ(rank.failed.size(), size_t{1});
  EXPECT_EQ(rank.failed[0].tag, 2);
  job.Settle();  // the withdrawal is confirmed before rank 0 has it ready
  job.ranks[0]->Submit("x", 1, 4);
  job.Settle();
  job.ExpectEqualSequences();
  job.ExpectNothingOpen();
  EXPECT_EQ(job.ranks[0]->executed.size(), size_t{1});
}

TEST(WhatIsNotAnnouncedYetIsTakenBackAtOnce) {
  Job job(2, ConfigOf(1024), 1);
  Player& rank = *job.ranks[1];
  const EntryId id = rank.Submit("x", 0, 4);
  rank.Cancel(id);
  ASSERT_EQ(rank.failed.size(), size_t{1});
  EXPECT_EQ(rank.failed[0].code, StatusCode::kCancelled);
  rank.Step();
  EXPECT_TRUE(job.network.Quiet());
  rank.Cancel(id);    // done already
  rank.Cancel(1000);  // never was
  job.ExpectNothingOpen();
}

TEST(WhatWasToBeAnnouncedByANumberEvictedSinceIsTakenBackAtOnce) {
  Job job(2, ConfigOf(1024), 1);
  Player& rank = *job.ranks[1];
  rank.control.prompt = true;
  rank.Submit("x", 0, 4, true);
  const EntryId second = rank.Submit("x", 1, 4, true);
  rank.Step();
  // The first is decided and gets number 5, under which the second is to be announced; then the
  // number is evicted, before anything is sent.
  Agreement decided;
  decided.sequence = 1;
  decided.items.resize(1);
  decided.items[0].id = 5;
  decided.items[0].decision.key.name = "x";
  Agreement evicted;
  evicted.sequence = 2;
  evicted.evicted = {5};
  job.network.Line(0, 1).push_back(Encode(decided));
  job.network.Line(0, 1).push_back(Encode(evicted));
  rank.Step();
  EXPECT_EQ(rank.executed.size(), size_t{1});
  rank.Cancel(second);
  EXPECT_EQ(rank.open, 0);
}

// What a failed step of a very large model does. A cancellation costs the same however many entries
// are pending: at a cost that grows with their number these tests take minutes.
const int kMany = testing::kSanitizer ? 5000 : 50000;

// Submits many, announces them or not, and cancels all, the one that was submitted `stride` after
// the last one first.
void CancelMany(bool announced, bool known, bool one_name, int stride) {
  Job job(2, ConfigOf(1000000), 1);
  const auto submit = [&](Player* rank) {
    std::vector<EntryId> ids;
    for (int i = 0; i < kMany; ++i) {
      ids.push_back(rank->Submit(one_name ? "x" : "x" + std::to_string(i), i, 4, one_name));
    }
    return ids;
  };
  if (known) {
    for (auto& rank : job.ranks) submit(rank.get());
    job.Settle();
    job.ExpectNothingOpen();
  }
  Player& rank = *job.ranks[0];
  rank.control.prompt = true;
  const std::vector<EntryId> ids = submit(&rank);
  if (announced) rank.Step();
  const size_t before = rank.failed.size();
  for (int i = 0; i < kMany; ++i) {
    rank.Cancel(ids[static_cast<size_t>(static_cast<int64_t>(i) * stride % kMany)]);
  }
  EXPECT_EQ(rank.failed.size() - before, static_cast<size_t>(announced ? 0 : kMany));
  job.Settle();
  EXPECT_EQ(rank.failed.size() - before, static_cast<size_t>(kMany));
  job.ExpectNothingOpen();
}

TEST(ToCancelWhatIsNotAnnouncedCostsTheSameHoweverMuchIsPending) {
  CancelMany(false, false, false, 1);
  CancelMany(false, false, false, kMany - 1);
  CancelMany(false, true, false, 70001);
}

TEST(ToCancelWhatIsAnnouncedCostsTheSameHoweverMuchIsPending) {
  CancelMany(true, false, false, 70001);
}

TEST(ToCancelEntriesOfOneNameCostsTheSameHoweverManyThereAre) {
  CancelMany(false, false, true, kMany - 1);
  CancelMany(false, false, true, 70001);
}

// They wait behind a failure that a rank has not confirmed: complete, and not decided.
TEST(ToWithdrawWhatIsCompleteCostsTheSameHoweverMuchIs) {
  Coordinator::Options options;
  options.hosts.assign(2, "host");
  Coordinator coordinator(std::move(options));
  const auto announce = [&](int rank, int first, int count, int64_t length) {
    Announcement announcement;
    for (int i = first; i < first + count; ++i) {
      Request request;
      request.key.name = "x" + std::to_string(i);
      request.tensors.push_back({DType::kFloat32, {length}});
      announcement.requests.push_back(std::move(request));
    }
    EXPECT_OK(coordinator.Take(rank, std::move(announcement), 0.0));
  };
  announce(0, 0, 1, 1);
  announce(1, 0, 1, 2);
  EXPECT_EQ(coordinator.Step(0.0).size(), size_t{2});  // the failure
  announce(0, 1, kMany, 4);
  announce(1, 1, kMany, 4);
  Announcement cancelled;
  for (int64_t i = 0; i < kMany; ++i) {
    cancelled.withdrawn.push_back({0, "x" + std::to_string(1 + i * 70001 % kMany)});
  }
  EXPECT_OK(coordinator.Take(1, cancelled, 0.0));
  EXPECT_TRUE(coordinator.waiting());
  for (const auto& [to, agreement] : coordinator.Step(0.0)) {
    EXPECT_EQ(to, 1);
    EXPECT_EQ(agreement->withdrawn.size(), static_cast<size_t>(kMany));
    EXPECT_TRUE(agreement->items.empty());
  }
  EXPECT_OK(coordinator.Take(0, cancelled, 0.0));
  EXPECT_FALSE(coordinator.waiting());
}

TEST(ADamagedMessageEndsTheJob) {
  Job job(2, ConfigOf(1024), 1);
  job.network.Line(1, 0).push_back("nonsense");
  job.ranks[0]->control.prompt = true;
  EXPECT_ERROR(job.ranks[0]->Step(0.0), StatusCode::kInternal, "damaged");
}

TEST(AMissingCoordinatorIsNoticed) {
  Config config;
  config.stall_check_time = 10.0;
  config.stall_shutdown_time = 20.0;
  Job job(2, config, 1);
  job.ranks[1]->Submit("x", 0, 4);
  Consensus::Outcome outcome;
  EXPECT_OK(job.ranks[1]->consensus.Step(0.0, &outcome));
  EXPECT_OK(job.ranks[1]->consensus.Step(21.0, &outcome));
  EXPECT_ERROR(job.ranks[1]->consensus.Step(23.0, &outcome), StatusCode::kAborted,
               "rank 0 (host host) has not answered for 23 s, while allreduce 'x'");
}

TEST(ALimitBelowTheTimeOfTheWarningHolds) {
  Config config;
  config.stall_check_time = 60.0;
  config.stall_shutdown_time = 6.0;
  Job job(2, config, 1);
  job.ranks[1]->Submit("x", 0, 4);
  EXPECT_OK(job.ranks[1]->Step(0.0));
  EXPECT_OK(job.ranks[1]->Step(7.0));
  EXPECT_ERROR(job.ranks[1]->Step(9.0), StatusCode::kAborted, "rank 0 (host host)");
}

TEST(TakeAllGivesBackWhatIsPending) {
  Job job(2, ConfigOf(1024), 1);
  for (int i = 0; i < 3; ++i) job.ranks[1]->Submit("a", i, 4, true);
  job.ranks[1]->Submit("b", 0, 4);
  EXPECT_TRUE(job.ranks[1]->consensus.expecting());
  EXPECT_EQ(job.ranks[1]->consensus.TakeAll().size(), size_t{4});
  EXPECT_FALSE(job.ranks[1]->consensus.expecting());
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
