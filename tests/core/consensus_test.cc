// Ranks that run a schedule without a word: every kind of deviation, at any moment, forced for
// thousands of steps on 2 to 8 ranks, over a network that delivers late. All ranks execute one
// sequence, equal occurrences meet, and nothing stays open.
#include "cc/engine/consensus.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/fake_job.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

enum class Kind { kPlain, kExtra, kMissing, kNewShape, kMismatch, kCancelled, kPause };

// What happens in a step, the same on every rank.
Kind KindOf(int step, uint32_t seed) {
  Random random(seed * 7919 + static_cast<uint32_t>(step));
  random.discard(3);
  if (Below(&random, 12) > 0) return Kind::kPlain;
  return static_cast<Kind>(1 + Below(&random, 6));
}

constexpr int kNames = 6;

// One rank's program: a step's tensors in an order of its own, the next step after the last.
class Program {
 public:
  Program(Job* job, int rank, uint32_t seed)
      : job_(job), rank_(rank), seed_(seed), player_(*job->ranks[static_cast<size_t>(rank)]) {}

  int step() const { return step_; }

  void Advance(int steps) {
    TakeFailures();
    if (failed_) GiveUp();
    if (pause_ > 0) {
      --pause_;
    } else if (!order_.empty()) {
      SubmitNext();
    } else if (Over() && step_ + 1 < steps) {
      Begin();
    }
  }

 private:
  bool Over() const {
    return failed_ || std::all_of(mine_.begin(), mine_.end(),
                                  [this](EntryId id) { return player_.finished.count(id) > 0; });
  }

  void Begin() {
    ++step_;
    failed_ = cancelled_ = false;
    mine_.clear();
    const Kind kind = KindOf(step_, seed_);
    for (int n = 0; n < kNames; ++n) {
      if (kind != Kind::kMissing || n != step_ % kNames) order_.push_back(n);
    }
    if (kind == Kind::kExtra) order_.push_back(kNames);
    std::shuffle(order_.begin(), order_.end(), job_->random);
    if (kind == Kind::kPause && rank_ == step_ % job_->size()) pause_ = 400;
  }

  void SubmitNext() {
    const int n = order_.back();
    order_.pop_back();
    const Kind kind = KindOf(step_, seed_);
    int64_t length = 4;
    const bool chosen = n == step_ % kNames;
    if (kind == Kind::kNewShape && chosen) length = 5;
    if (kind == Kind::kMismatch && chosen && rank_ == job_->size() - 1) length = 9;
    const EntryId id = player_.Submit("t" + std::to_string(n), step_, length);
    mine_.push_back(id);
    const bool mine = rank_ == step_ % job_->size();
    if (kind == Kind::kCancelled && mine && !cancelled_ && Below(&job_->random, 3) == 0) {
      cancelled_ = true;
      player_.Cancel(
          mine_[static_cast<size_t>(Below(&job_->random, static_cast<int>(mine_.size())))]);
    }
  }

  // What was cancelled is submitted anew, what did not fit ends the step.
  void TakeFailures() {
    for (const Event& e : player_.fresh_failures) {
      if (e.tag != step_ || failed_) continue;
      if (e.code == StatusCode::kInvalidArgument) failed_ = true;
      if (e.code == StatusCode::kCancelled) order_.push_back(e.name[1] - '0');
    }
    player_.fresh_failures.clear();
  }

  void GiveUp() {
    order_.clear();
    for (EntryId id : mine_) {
      if (player_.finished.count(id) == 0) player_.Cancel(id);
    }
  }

  Job* const job_;
  const int rank_;
  const uint32_t seed_;
  Player& player_;
  int step_ = -1;
  int pause_ = 0;
  bool failed_ = false;
  bool cancelled_ = false;
  std::vector<int> order_;
  std::vector<EntryId> mine_;
};

struct Tally {
  int64_t locked = 0;  // moments in which some rank ran a schedule
  int64_t moments = 0;
  int64_t messages = 0;  // moments in which some message was under way
};

Tally RunSteps(int size, uint32_t seed, int steps, bool leave) {
  Config config;
  config.stall_check = false;
  Job job(size, config, seed);
  std::vector<std::unique_ptr<Program>> programs;
  for (int r = 0; r < size; ++r) programs.push_back(std::make_unique<Program>(&job, r, seed));
  Tally tally;
  const auto done = [&] {
    return std::all_of(programs.begin(), programs.end(),
                       [&](const auto& p) { return p->step() + 1 >= steps; });
  };
  for (int64_t i = 0; !done() && i < int64_t{4000} * steps * size; ++i) {
    const auto r = static_cast<size_t>(Below(&job.random, size));
    if (!job.ranks[r]->fresh_failures.empty() || Below(&job.random, 2) == 0) {
      programs[r]->Advance(steps);
    }
    job.now += 0.0002;
    job.ranks[r]->Step();
    ++tally.moments;
    tally.locked += job.ranks[r]->consensus.locked() ? 1 : 0;
    tally.messages += job.network.Quiet() ? 0 : 1;
  }
  EXPECT_TRUE(done());
  if (leave) job.ranks[static_cast<size_t>(size - 1)]->consensus.Leave("");
  for (int i = 0; i < 60; ++i) {
    for (int k = 0; k < 20; ++k) {
      for (auto& program : programs) program->Advance(steps);
    }
    job.Settle();
  }
  job.ExpectEqualSequences();
  job.ExpectNothingOpen();
  for (auto& rank : job.ranks) rank->consensus.Leave("");
  job.Settle();
  for (auto& rank : job.ranks) EXPECT_TRUE(rank->consensus.over());
  return tally;
}

TEST(EveryDeviationLeadsBackToOneSequence) {
  Tally all;
  for (uint32_t seed = 0; seed < testing::Sweep(28u); ++seed) {
    const Tally tally = RunSteps(2 + static_cast<int>(seed % 7), seed, 150, seed % 3 == 0);
    all.locked += tally.locked;
    all.moments += tally.moments;
  }
  EXPECT_TRUE(all.locked > all.moments / 20);  // schedules were locked, and ended
  EXPECT_TRUE(all.locked < all.moments);
}

// Submits one step of `names` on every rank, and lets it happen.
void Step(Job* job, const std::vector<std::string>& names, int64_t length = 4) {
  for (auto& rank : job->ranks) {
    for (const std::string& name : names) rank->Submit(name, 0, length);
  }
  for (int i = 0; i < 8; ++i) {
    for (auto& rank : job->ranks) {
      rank->control.prompt = true;
      rank->Step();
    }
  }
}

bool AllLocked(const Job& job) {
  return std::all_of(job.ranks.begin(), job.ranks.end(),
                     [](const auto& rank) { return rank->consensus.locked(); });
}

std::unique_ptr<Job> LockedJob(int size, const Config& config = Config()) {
  auto job = std::make_unique<Job>(size, config, 1);
  for (int i = 0; i < 8; ++i) Step(job.get(), {"a", "b"});
  EXPECT_TRUE(AllLocked(*job));
  return job;
}

TEST(ALockedStepSendsNothing) {
  const auto job = LockedJob(4);
  for (int i = 0; i < 50; ++i) {
    for (auto& rank : job->ranks) {
      rank->Submit("b", 0, 4);
      rank->Submit("a", 0, 4);
    }
    for (int turn = 0; turn < 4; ++turn) {
      for (auto& rank : job->ranks) rank->Step();
      EXPECT_TRUE(job->network.Quiet());
    }
  }
  job->ExpectNothingOpen();
  job->ExpectEqualSequences();
}

TEST(ABucketWaitsForEveryRank) {
  const auto job = LockedJob(3);
  for (int r = 0; r < 2; ++r) {
    job->ranks[static_cast<size_t>(r)]->Submit("a", 1, 4);
    job->ranks[static_cast<size_t>(r)]->Submit("b", 1, 4);
  }
  job->ranks[2]->Submit("a", 1, 4);
  for (int i = 0; i < 5; ++i) {
    for (auto& rank : job->ranks) rank->Step();
  }
  EXPECT_EQ(job->ranks[0]->open, 2);
  EXPECT_EQ(job->ranks[2]->open, 1);
  ASSERT_TRUE(job->ranks[2]->consensus.awaited() != nullptr);
  EXPECT_EQ(job->ranks[2]->consensus.awaited()->count, 2);
  EXPECT_TRUE(job->ranks[0]->consensus.awaited() == nullptr);  // it has voted
  job->ranks[2]->Submit("b", 1, 4);
  for (int i = 0; i < 5; ++i) {
    for (auto& rank : job->ranks) rank->Step();
  }
  job->ExpectNothingOpen();
  EXPECT_TRUE(AllLocked(*job));
}

TEST(AThreadThatSubmitsRunsOneBucketThoughTwoAreComplete) {
  const auto job = LockedJob(1);
  Player& rank = *job->ranks[0];
  for (const int step : {1, 2}) {
    for (const char* name : {"a", "b"}) rank.Submit(name, step, 4, true);
  }
  for (const size_t buckets : {size_t{1}, size_t{1}, size_t{0}}) {
    Consensus::Outcome outcome;
    EXPECT_FALSE(rank.consensus.StepOneBucket(job->now, &outcome));  // nobody's vote is missing
    ASSERT_EQ(outcome.agreed.size(), buckets);
    if (buckets > 0) EXPECT_EQ(outcome.agreed[0].agreed.size(), size_t{2});
  }
}

TEST(AnotherTensorEndsItEverywhere) {
  const auto job = LockedJob(3);
  job->ranks[1]->Submit("other", 0, 4);
  job->ranks[1]->Step();
  EXPECT_FALSE(job->ranks[1]->consensus.locked());
  for (auto& rank : job->ranks) rank->Step();
  for (auto& rank : job->ranks) EXPECT_FALSE(rank->consensus.locked());
  job->ranks[0]->Submit("other", 0, 4);
  job->ranks[2]->Submit("other", 0, 4);
  job->Settle();
  job->ExpectNothingOpen();
  job->ExpectEqualSequences();
}

TEST(AStepIsLockedAgainOnceItHasComeAfterAnother) {
  const auto job = LockedJob(3);
  for (int i = 0; i < 4; ++i) Step(job.get(), {"a", "b"});
  for (int epoch = 0; epoch < 3; ++epoch) {  // in the first one the metric is new
    Step(job.get(), {"metric"});
    for (auto& rank : job->ranks) EXPECT_FALSE(rank->consensus.locked());
    Step(job.get(), {"b", "a"});
    EXPECT_TRUE(AllLocked(*job));
    for (int i = 0; i < 4; ++i) Step(job.get(), {"a", "b"});
    EXPECT_TRUE(AllLocked(*job));
  }
  job->ExpectNothingOpen();
  job->ExpectEqualSequences();
}

TEST(WhoHasVotedAsksTheOthersToEnd) {
  const auto job = LockedJob(2);
  for (const char* name : {"a", "b"}) job->ranks[0]->Submit(name, 1, 4);
  job->ranks[0]->Step();  // has voted
  job->ranks[0]->Submit("other", 1, 4);
  job->ranks[0]->Step();
  EXPECT_TRUE(job->ranks[0]->consensus.locked());  // bound until rank 1 answers
  job->ranks[1]->Step();
  EXPECT_FALSE(job->ranks[1]->consensus.locked());
  job->ranks[0]->Step();
  EXPECT_FALSE(job->ranks[0]->consensus.locked());
  for (const char* name : {"other", "a", "b"}) job->ranks[1]->Submit(name, 1, 4);
  job->Settle();
  job->ExpectNothingOpen();
  job->ExpectEqualSequences();
}

TEST(ABucketThatDoesNotFillEndsIt) {
  const auto job = LockedJob(2);
  for (auto& rank : job->ranks) rank->Submit("a", 1, 4);
  for (auto& rank : job->ranks) rank->Step();
  EXPECT_TRUE(AllLocked(*job));
  job->now += 3.0;
  for (int i = 0; i < 6; ++i) {
    for (auto& rank : job->ranks) rank->Step();
  }
  job->ExpectNothingOpen();  // announced, and agreed
  job->ExpectEqualSequences();
  for (auto& rank : job->ranks) EXPECT_FALSE(rank->consensus.locked());
}

// A step of `a`, and of `b` after a while; some ranks' `b` comes late, or every rank's once `a` is
// over. Whether that ended a schedule.
bool StepApart(Job* job, bool late, bool waits) {
  const auto run = [job] {
    for (int i = 0; i < 8; ++i) {
      for (auto& rank : job->ranks) rank->Step();
    }
  };
  const auto submit = [job](const std::string& name) {
    for (auto& rank : job->ranks) {
      rank->control.prompt = true;
      rank->Submit(name, 0, 4);
    }
  };
  const bool was_locked = AllLocked(*job);
  submit("a");
  run();
  if (late || (waits && job->ranks[0]->open > 0)) {
    job->now += 3.0;
    run();
  }
  const bool ended = was_locked && !AllLocked(*job);
  submit("b");
  run();
  job->ExpectNothingOpen();
  return ended;
}

bool RanTogether(const Job& job) {
  const std::vector<Event>& executed = job.ranks[0]->executed;
  return executed.back().round == executed[executed.size() - 2].round;
}

TEST(WhatOneLateStepHasCostComesBack) {
  Job job(3, Config(), 1);
  for (int i = 0; i < 8; ++i) StepApart(&job, false, false);
  EXPECT_TRUE(AllLocked(job) && RanTogether(job));
  EXPECT_TRUE(StepApart(&job, true, false));
  for (int i = 0; i < 8; ++i) StepApart(&job, false, false);
  EXPECT_TRUE(AllLocked(job) && !RanTogether(job));
  for (int64_t i = 0; i < Trust::kFewestSteps + 8; ++i) StepApart(&job, false, false);
  EXPECT_TRUE(AllLocked(job) && RanTogether(job));
  job.ExpectEqualSequences();
}

TEST(AStepWhoseTensorsWaitForEachOtherIsRarelyTakenForAnother) {
  Job job(2, Config(), 1);
  int late = 0;
  int locked = 0;
  for (int i = 0; i < 4000; ++i) {
    late += StepApart(&job, false, true) ? 1 : 0;
    locked += AllLocked(job) ? 1 : 0;
  }
  EXPECT_TRUE(late >= 2 && late <= 10);  // twice as far apart each time
  EXPECT_TRUE(locked > 3000);
  job.ExpectEqualSequences();
}

TEST(AStallIsReportedAsEverWithTensorAndRanks) {
  Config config;
  config.stall_check_time = 4.0;
  config.stall_shutdown_time = 8.0;
  const auto job = LockedJob(3, config);
  for (const char* name : {"a", "b"}) {
    job->ranks[0]->Submit(name, 1, 4);
    job->ranks[1]->Submit(name, 1, 4);
  }
  for (int i = 0; i < 40; ++i) {
    job->now += 0.5;
    for (auto& rank : job->ranks) rank->Step();
  }
  job->ExpectNothingOpen();
  ASSERT_EQ(job->ranks[0]->failed.size(), size_t{2});
  EXPECT_EQ(job->ranks[0]->failed[0].code, StatusCode::kAborted);
}

TEST(ARankThatAnswersNothingIsNamed) {
  Config config;
  config.stall_check_time = 4.0;
  config.stall_shutdown_time = 8.0;
  const auto job = LockedJob(2, config);
  for (const char* name : {"a", "b"}) job->ranks[0]->Submit(name, 1, 4);
  Status lost;
  for (int i = 0; i < 40 && lost.ok(); ++i) {
    job->now += 0.5;
    Consensus::Outcome outcome;  // rank 1 is stopped
    lost = job->ranks[0]->consensus.Step(job->now, &outcome);
  }
  EXPECT_ERROR(lost, StatusCode::kAborted, "allreduce 'a'");
  EXPECT_CONTAINS(lost.message(), "ranks [1]");
}

TEST(ACancelledTensorIsGivenBack) {
  const auto job = LockedJob(2);
  const EntryId id = job->ranks[0]->Submit("a", 1, 4);
  job->ranks[0]->Step();
  job->ranks[0]->Cancel(id);
  job->ranks[0]->Step();
  ASSERT_EQ(job->ranks[0]->failed.size(), size_t{1});
  EXPECT_EQ(job->ranks[0]->failed[0].code, StatusCode::kCancelled);
  job->Settle();
  for (auto& rank : job->ranks) EXPECT_FALSE(rank->consensus.locked());
  Step(job.get(), {"a", "b"});
  job->ExpectNothingOpen();
}

TEST(OneCancelledAfterTheVoteIsDecidedByTheOthers) {
  for (const bool others_come : {false, true}) {
    const auto job = LockedJob(2);
    const EntryId id = job->ranks[0]->Submit("a", 1, 4);
    job->ranks[0]->Submit("b", 1, 4);
    job->ranks[0]->Step();
    job->ranks[0]->Cancel(id);
    EXPECT_EQ(job->ranks[0]->failed.size(), size_t{0});
    if (others_come) {
      job->ranks[1]->Submit("a", 1, 4);
      job->ranks[1]->Submit("b", 1, 4);
    }
    for (int r : {1, 0, 1, 0}) job->ranks[static_cast<size_t>(r)]->Step();
    EXPECT_EQ(job->ranks[0]->failed.size(), others_come ? size_t{0} : size_t{1});
    EXPECT_EQ(job->ranks[0]->finished.count(id), size_t{1});
    for (auto& rank : job->ranks) rank->consensus.Leave("");
    job->Settle();
    job->ExpectNothingOpen();
  }
}

TEST(LeavingEndsIt) {
  const auto job = LockedJob(3);
  for (const char* name : {"a", "b"}) {
    job->ranks[0]->Submit(name, 1, 4);
    job->ranks[2]->Submit(name, 1, 4);
  }
  job->ranks[2]->Step();
  job->ranks[1]->consensus.Leave("");
  job->Settle();
  job->ExpectNothingOpen();
  for (auto& rank : job->ranks) rank->consensus.Leave("");
  job->Settle();
  for (auto& rank : job->ranks) EXPECT_TRUE(rank->consensus.over());
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
