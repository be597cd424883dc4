// What joins rank 0's coordinator to the ranks: it goes on while messages do not leave, and while
// ranks are in collectives; alarms.
#include "cc/negotiate/coordinator_server.h"

#include <memory>
#include <string>

#include "cc/flow/codec.h"
#include "tests/core/fake_job.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

std::unique_ptr<Job> PromptJob(int size, const Config& config = Config()) {
  auto job = std::make_unique<Job>(size, config, 1);
  for (auto& rank : job->ranks) rank->control.prompt = true;
  return job;
}

TEST(AnUnflushedMessageHoldsUpRankZeroForAMomentOnly) {
  const auto job = PromptJob(2);
  job->ranks[0]->control.holds = true;
  job->now = 1.0;
  for (auto& rank : job->ranks) rank->Submit("x", 0, 4);
  EXPECT_OK(job->ranks[1]->Step(1.0));
  EXPECT_OK(job->ranks[0]->Step(1.0));
  EXPECT_OK(job->ranks[0]->Step(1.005));
  EXPECT_TRUE(job->ranks[0]->executed.empty());
  EXPECT_TRUE(job->ranks[0]->server->wake_at() > 1.005);  // nobody spins meanwhile
  EXPECT_OK(job->ranks[0]->Step(1.02));
  EXPECT_EQ(job->ranks[0]->executed.size(), size_t{1});
}

TEST(TheCoordinatorDecidesWhileAMessageIsHeld) {
  const auto job = PromptJob(2);
  job->ranks[0]->control.holds = true;
  for (const char* name : {"x", "y"}) {
    for (auto& rank : job->ranks) rank->Submit(name, 0, 4);
    EXPECT_OK(job->ranks[1]->Step(1.0));
    EXPECT_OK(job->ranks[0]->Step(1.0));
  }
  EXPECT_OK(job->ranks[1]->Step(1.0));
  EXPECT_EQ(job->ranks[1]->executed.size(), size_t{2});
  EXPECT_TRUE(job->ranks[0]->executed.empty());
}

TEST(AStallIsFoundWhileAMessageIsHeld) {
  Config config;
  config.stall_check_time = 1.0;
  config.stall_shutdown_time = 2.0;
  const auto job = PromptJob(2, config);
  job->ranks[0]->control.holds = true;
  job->ranks[0]->Submit("x", 0, 4);
  for (job->now = 0.0; job->now < 3.0; job->now += 0.1) EXPECT_OK(job->ranks[0]->Step(job->now));
  ASSERT_EQ(job->ranks[0]->failed.size(), size_t{1});
  EXPECT_EQ(job->ranks[0]->failed[0].code, StatusCode::kAborted);
}

TEST(ARankThatWaitsKeepsAgreementsForLater) {
  const auto job = PromptJob(3);
  for (auto& rank : job->ranks) rank->Submit("x", 0, 4);
  for (int r : {1, 2, 0}) EXPECT_OK(job->ranks[static_cast<size_t>(r)]->Step(1.0));
  EXPECT_OK(job->ranks[1]->Wait(0.5));
  EXPECT_TRUE(job->ranks[1]->executed.empty());
  EXPECT_OK(job->ranks[1]->Step(1.0));
  EXPECT_EQ(job->ranks[1]->executed.size(), size_t{1});
}

TEST(RankZeroCoordinatesOutOfACollective) {
  const auto job = PromptJob(3);
  for (auto& rank : job->ranks) rank->Submit("x", 0, 4);
  for (int r : {1, 2}) EXPECT_OK(job->ranks[static_cast<size_t>(r)]->Step(1.0));
  // It has announced its own, and waits in a collective before that.
  Consensus::Outcome outcome;
  EXPECT_OK(job->ranks[0]->consensus.Step(1.0, &outcome));
  EXPECT_OK(job->ranks[0]->Wait(0.1));
  EXPECT_OK(job->ranks[1]->Step(1.0));
  EXPECT_EQ(job->ranks[1]->executed.size(), size_t{1});
  EXPECT_TRUE(job->ranks[0]->executed.empty());
}

TEST(AnAlarmEndsTheJobAndIsPassedOn) {
  for (const bool within : {false, true}) {
    const auto job = PromptJob(3);
    const Status why = Status::Unavailable("rank 2 has no memory");
    job->ranks[2]->control.Alarm(Encode(Alarm{why}));
    EXPECT_FALSE(job->ranks[1]->consensus.alarmed());
    // Rank 0 takes it, in whatever it is, and rank 1 hears of it by rank 0.
    for (int r : {0, 1}) {
      Player& rank = *job->ranks[static_cast<size_t>(r)];
      Status status;
      for (int i = 0; i < 2 && status.ok(); ++i) status = within ? rank.Wait(0.1) : rank.Step(1.0);
      EXPECT_EQ(status, why);
      EXPECT_TRUE(rank.consensus.alarmed());
    }
  }
}

// The limit has passed once already: another time it is not waited for.
TEST(AStalledJobIsOverSoonAfterSomeHaveLeft) {
  Config config;
  config.stall_check_time = 1.0;
  config.stall_shutdown_time = 2.5;
  const auto job = PromptJob(2, config);
  job->ranks[0]->Submit("x", 0, 4);
  for (job->now = 0.0; job->now < 3.0; job->now += 0.1) EXPECT_OK(job->ranks[0]->Step(job->now));
  job->ranks[0]->consensus.Leave("");
  EXPECT_OK(job->ranks[0]->Step(3.0));
  EXPECT_OK(job->ranks[0]->Step(3.9));
  EXPECT_ERROR(job->ranks[0]->Step(4.1), StatusCode::kAborted, "stalled for longer than");
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
