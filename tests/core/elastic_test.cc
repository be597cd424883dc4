// Jobs that go on without the ranks that they lose, and with those that come.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/elastic/elastic_job.h"
#include "cc/elastic/roster_change.h"
#include "tests/core/elastic_ranks.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"
#include "tests/core/wrapped_communicator.h"

namespace tfhvd {
namespace testing {
namespace {

TEST(WhoIsLostIsNotWaitedForAnyMore) {
  ElasticRanks ranks(3);
  std::vector<std::unique_ptr<Call>> calls;
  for (const int member : {0, 2}) calls.push_back(Reduce(ranks.job(member), "a", 5, 1.0f + member));
  ranks.Kill(1);
  ranks.Announce([] {});
  for (const auto& call : calls) {
    EXPECT_OK(call->Wait());
    EXPECT_EQ(call->out, std::vector<float>(5, 4.0f));
  }
  EXPECT_EQ(GenerationAfter(0, ranks.job(0)), 1);
  EXPECT_EQ(ranks.job(2)->engine()->topology().rank, 1);
  EXPECT_EQ(ranks.job(2)->engine()->topology().size, 2);
  ranks.End();
}

TEST(InputsThatShareMemoryWithOutputsAreKept) {
  ElasticRanks ranks(2);
  const auto call = Reduce(ranks.job(0), "a", 1000, 3.0f, /*in_place=*/true);
  ranks.Kill(1);
  ranks.Announce([] {});
  EXPECT_OK(call->Wait());
  EXPECT_EQ(call->out, std::vector<float>(1000, 3.0f));
  ranks.End();
}

TEST(WhereNobodyIsSaidToBeLostEntriesFailInTheEnd) {
  ElasticRanks ranks(2);
  const auto call = Reduce(ranks.job(0), "a", 5, 1.0f);
  ranks.Kill(1);
  ranks.job(0)->engine()->Abandon(Status::Aborted("rank 1 does not answer"));
  EXPECT_ERROR(call->Wait(), StatusCode::kAborted, "rank 1 does not answer");
  ranks.End();
}

TEST(OnceTheMembershipEndsEntriesFailAsInAJobOfFixedSize) {
  ElasticRanks ranks(2);
  const auto call = Reduce(ranks.job(0), "a", 5, 1.0f);
  ranks.membership(0)->End(Status::Aborted("rank 1 has finished"));
  ranks.Kill(1);
  ranks.job(0)->engine()->Abandon(Status::Aborted("rank 1 has left"));
  EXPECT_ERROR(call->Wait(), StatusCode::kAborted, "rank 1");
  EXPECT_ERROR(Reduce(ranks.job(0), "b", 5, 1.0f)->Wait(), StatusCode::kAborted, "");
  EXPECT_EQ(GenerationAfter(0, ranks.job(0)), kNone);
  ranks.End();
}

std::unique_ptr<Call> FromRoot(ElasticJob* job, const std::string& name, int root, float value) {
  auto call = std::make_unique<Call>();
  call->in.assign(3, value);
  call->out.assign(3, -1.0f);
  Entry entry = EntryFor(call.get(), Collective::kBroadcast, name, {3});
  entry.request.Edit()->root = root;
  entry.allocate = nullptr;
  job->Submit(std::move(entry));
  return call;
}

TEST(ABroadcastGoesOnFromItsRootByItsNewNumberOrFails) {
  ElasticRanks ranks(3);
  const auto from_two = FromRoot(ranks.job(1), "a", 2, 0.0f);
  const auto from_zero = FromRoot(ranks.job(1), "b", 0, 0.0f);
  ranks.Kill(0);
  ranks.job(1)->engine()->Abandon(Status::Aborted("rank 0 is lost"));
  ranks.Announce([] {});
  EXPECT_ERROR(from_zero->Wait(), StatusCode::kAborted, "root");
  EXPECT_EQ(GenerationAfter(0, ranks.job(2)), 1);
  const auto root = FromRoot(ranks.job(2), "a", 1, 7.0f);  // by its new number
  EXPECT_OK(from_two->Wait());
  EXPECT_OK(root->Wait());
  EXPECT_EQ(from_two->out, std::vector<float>(3, 7.0f));
  ranks.End();
}

TEST(AnEntryThatIsTakenBackWhileNobodyIsThere) {
  ElasticRanks ranks(2);
  auto call = std::make_unique<Call>();
  call->in.assign(5, 1.0f);
  call->out.assign(5, 1.0f);
  ranks.Kill(1);
  ranks.job(0)->engine()->Abandon(Status::Aborted("rank 1 is lost"));
  ranks.job(0)->engine()->WaitUntilOver(60.0);
  const EntryId id = ranks.job(0)->Submit(EntryFor(call.get(), Collective::kAllReduce, "a", {5}));
  ranks.job(0)->Cancel(id);
  EXPECT_ERROR(call->Wait(), StatusCode::kCancelled, "");
  ranks.End();
}

// Of the collective in which it was lost some ranks have the result, and others have not.
TEST(WhatSomeHadOthersGetFromThemToTheBit) {
  for (int late = 0; late < 2; ++late) {
    // Member `late` fails at the end of the first call, when the others are done with it.
    ElasticRanks ranks(3, [late](int member, std::unique_ptr<Communicator> inner) {
      return std::make_unique<WrappedCommunicator>(
          std::move(inner), [member, late](const std::function<Status()>& reduce) {
            const Status status = reduce();
            return member == late ? Status::Aborted("member 2 is lost") : status;
          });
    });
    std::vector<std::unique_ptr<Call>> first;
    for (int member = 0; member < 3; ++member) {
      first.push_back(Reduce(ranks.job(member), "a", 1000, ValueOf(member)));
    }
    const int other = 1 - late;
    EXPECT_OK(first[static_cast<size_t>(other)]->Wait());
    EXPECT_OK(first[2]->Wait());
    ranks.Kill(2);
    ranks.Announce([] {});
    EXPECT_OK(first[static_cast<size_t>(late)]->Wait());
    for (const int member : {0, 1}) {
      EXPECT_EQ(first[static_cast<size_t>(member)]->out, std::vector<float>(1000, 7.0f));
    }
    std::vector<std::unique_ptr<Call>> next;
    for (const int member : {0, 1}) next.push_back(Reduce(ranks.job(member), "a", 9, 1.0f));
    for (const auto& call : next) {
      EXPECT_OK(call->Wait());
      EXPECT_EQ(call->out, std::vector<float>(9, 2.0f));
    }
    ranks.End();
  }
}

TEST(WhoComesLaterTakesPartAndCountsAsTheOthersDo) {
  ElasticRanks ranks(2);
  ExpectSums(&ranks, {0, 1}, 3);
  EXPECT_EQ(ranks.Add(), 2);
  EXPECT_TRUE(ranks.job(2)->engine() == nullptr);
  EXPECT_EQ(ranks.job(2)->generation(), -1);
  EXPECT_TRUE(ranks.job(0)->WaitUntilIdle(std::chrono::seconds(30)));
  ranks.Announce([] {});
  for (const int member : {0, 1, 2}) EXPECT_EQ(GenerationAfter(0, ranks.job(member)), 1);
  EXPECT_EQ(ranks.job(2)->engine()->topology().rank, 2);
  ExpectSums(&ranks, {0, 1, 2}, 2);

  // The next one is lost while it waits, with one that is in; and all that are left go on.
  EXPECT_EQ(ranks.Add(), 3);
  ranks.Kill(0);
  ranks.Kill(3);
  const auto waits = Reduce(ranks.job(1), "a", 9, ValueOf(1));
  ranks.Announce([] {});
  const auto comes = Reduce(ranks.job(2), "a", 9, ValueOf(2));
  EXPECT_OK(waits->Wait());
  EXPECT_OK(comes->Wait());
  EXPECT_EQ(waits->out, std::vector<float>(9, 6.0f));
  ExpectSums(&ranks, {1, 2}, 2);
  ranks.End();
}

TEST(AChangeOfTheMembersInWords) {
  Roster before;
  before.members = {0, 2, 5};
  Roster after;
  after.generation = 4;
  after.members = {2, 5, 6, 7};
  const RosterChange change = Compare(before, after);
  EXPECT_EQ(change.lost, std::vector<int>({0}));
  EXPECT_EQ(change.joined, (std::vector<int>{2, 3}));
  EXPECT_EQ(Describe(change, after),
            "rank 0 is lost; ranks 2, 3 join; the job goes on with 4 ranks, numbered anew "
            "(generation 4).");
  after.members = {5};
  EXPECT_EQ(Describe(Compare(before, after), after),
            "ranks 0, 1 are lost; the job goes on with 1 rank, numbered anew (generation 4).");
}

TEST(WhatIsUnderWayIsNotIdle) {
  ElasticRanks ranks(2);
  const auto call = Reduce(ranks.job(0), "a", 9, 1.0f);
  EXPECT_FALSE(ranks.job(0)->WaitUntilIdle(std::chrono::milliseconds(20)));
  const auto other = Reduce(ranks.job(1), "a", 9, 1.0f);
  EXPECT_TRUE(ranks.job(0)->WaitUntilIdle(std::chrono::seconds(30)));
  ranks.End();
}

TEST(NobodyJoinsAJobOfWhichNobodyIsLeft) {
  ElasticRanks ranks(1);
  ranks.Add();
  ranks.Add();
  ranks.Kill(0);
  ranks.Announce([] {});
  for (const int member : {1, 2}) {
    EXPECT_EQ(GenerationAfter(-1, ranks.job(member)), kNone);
  }
  ranks.End();
}

TEST(RanksComeAndGoInAnyOrder) {
  for (unsigned seed = 0; seed < (kSanitizer ? 10u : 60u); ++seed) ComeAndGo(seed);
}

TEST(SurvivorsMakeAllStepsAndHaveTheSameResults) {
  for (unsigned seed = 0; seed < (kSanitizer ? 15u : 60u); ++seed) Survive(seed);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
