// Jobs that go on without the ranks that they lose, and with those that come.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
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

TEST(ABroadcastGoesOnFromItsRootByItsNewNumberOrFails) {
  ElasticRanks ranks(3);
  const auto from_two = FromRoot(ranks.job(1), "a", 2, 0.0f);
  const auto from_zero = FromRoot(ranks.job(1), "b", 0, 0.0f);
  ranks.Kill(0);
  ranks.job(1)->engine()->Abandon(Status::Aborted("rank 0 is lost"));
  ranks.Announce([] {});
  EXPECT_EQ(GenerationAfter(0, ranks.job(2)), 1);
  const auto root = FromRoot(ranks.job(2), "a", 1, 7.0f);  // by its new number
  EXPECT_OK(from_two->Wait());
  EXPECT_OK(root->Wait());
  EXPECT_EQ(from_two->out, std::vector<float>(3, 7.0f));
  // Who comes to it after the loss names a root that is there, and would wait for it.
  const auto later = FromRoot(ranks.job(2), "b", 0, 0.0f);
  EXPECT_ERROR(from_zero->Wait(), StatusCode::kDataLoss, "root");
  EXPECT_ERROR(later->Wait(), StatusCode::kDataLoss, "root");
  const auto again = FromRoot(ranks.job(1), "b", 0, 8.0f);
  const auto other = FromRoot(ranks.job(2), "b", 0, 0.0f);
  EXPECT_OK(again->Wait());
  EXPECT_OK(other->Wait());
  EXPECT_EQ(other->out, std::vector<float>(3, 8.0f));
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

constexpr const char* kFromCommit = "the job continues from its last commit";

// An entry of an accelerator, which this machine does not have: what counts is that there is one.
void ReduceOnAccelerator(ElasticJob* job) {
  auto call = std::make_unique<Call>();
  call->in.assign(3, 1.0f);
  call->out.assign(3, 0.0f);
  Entry entry = EntryFor(call.get(), Collective::kAllReduce, "gpu", {3});
  entry.request.Edit()->device = DeviceKind::kGpu;
  entry.allocate = nullptr;
  job->Submit(std::move(entry));
  EXPECT_ERROR(call->Wait(), StatusCode::kUnavailable, "on a GPU");
}

TEST(AJobOfAcceleratorsGoesBackToWhatItHasKept) {
  ElasticRanks ranks(3);
  ReduceOnAccelerator(ranks.job(2));  // of one rank
  std::vector<std::unique_ptr<Call>> calls;
  for (const int member : {0, 2}) calls.push_back(Reduce(ranks.job(member), "a", 5, 1.0f));
  ranks.Kill(1);
  ranks.Announce([] {});
  for (const auto& call : calls) {
    EXPECT_ERROR(call->Wait(), StatusCode::kAborted, kFromCommit);
  }
  for (const int member : {0, 2}) {
    EXPECT_EQ(GenerationAfter(0, ranks.job(member)), 1);
    EXPECT_ERROR(Reduce(ranks.job(member), "b", 5, 1.0f)->Wait(), StatusCode::kAborted,
                 kFromCommit);
  }
  EXPECT_EQ(ranks.job(0)->RollBack(std::chrono::seconds(30)).value_or(kNone), 1);
  const auto first = Reduce(ranks.job(0), "c", 5, 1.0f);
  EXPECT_ERROR(Reduce(ranks.job(2), "c", 5, 2.0f)->Wait(), StatusCode::kAborted, kFromCommit);
  EXPECT_EQ(ranks.job(2)->RollBack(std::chrono::seconds(30)).value_or(kNone), 1);
  const auto second = Reduce(ranks.job(2), "c", 5, 2.0f);
  for (Call* const call : {first.get(), second.get()}) {
    EXPECT_OK(call->Wait());
    EXPECT_EQ(call->out, std::vector<float>(5, 3.0f));
  }
  const int later = ranks.Add();
  ranks.Announce([] {});
  ExpectSums(&ranks, {0, 2, later}, 3);  // with what has counted otherwise before
  ranks.End();
}

TEST(ALossWhileTheJobGoesBackSendsItBackAgain) {
  ElasticRanks ranks(3);
  ReduceOnAccelerator(ranks.job(0));
  ranks.Kill(1);
  ranks.Announce([] {});
  EXPECT_EQ(GenerationAfter(0, ranks.job(0)), 1);
  EXPECT_EQ(ranks.job(0)->RollBack(std::chrono::seconds(30)).value_or(kNone), 1);
  const auto back = Reduce(ranks.job(0), "a", 5, 1.0f);
  ranks.Kill(2);
  ranks.Announce([] {});
  EXPECT_ERROR(back->Wait(), StatusCode::kAborted, kFromCommit);
  EXPECT_EQ(ranks.job(0)->RollBack(std::chrono::seconds(30)).value_or(kNone), 2);
  EXPECT_OK(Reduce(ranks.job(0), "a", 5, 1.0f)->Wait());
  ranks.End();
}

TEST(WhereTheJobEndsItDoesNotRollBack) {
  ElasticRanks ranks(2);
  ReduceOnAccelerator(ranks.job(0));
  const auto call = Reduce(ranks.job(0), "a", 5, 1.0f);
  ranks.membership(0)->End(Status::Aborted("too few are left"));
  ranks.Kill(1);
  ranks.job(0)->engine()->Abandon(Status::Aborted("rank 1 is lost"));
  EXPECT_ERROR(call->Wait(), StatusCode::kAborted, "");
  EXPECT_FALSE(ranks.job(0)->RollBack(std::chrono::seconds(30)).has_value());
  ranks.End();
}

// As hvd.elastic.run has a program train: a state that all have is kept now and then, and where a
// rank is lost all go back to it, and take the first one's.
class TrainedByCommits {
 public:
  static constexpr int kSteps = 400;

  TrainedByCommits(ElasticJob* job, int member) : job_(job), member_(member) {
    ReduceOnAccelerator(job);
  }

  // Until the end, or this rank's own.
  void Train() {
    bool goes_back = false;
    while (!(goes_back ? GetEven() && Steps() : Steps())) {
      if (!job_->RollBack(std::chrono::seconds(30)).has_value()) return;
      goes_back = true;
    }
    done_ = true;
  }

  bool done() const { return done_; }
  float step() const { return state_[0]; }
  float value() const { return state_[1]; }
  std::atomic<int> reached{0};

 private:
  bool GetEven() {
    state_ = kept_;
    const int rank = job_->engine()->topology().rank;
    auto call = std::make_unique<Call>();
    call->in.assign({state_[0], state_[1], 0.0f});
    call->out.assign(3, -1.0f);
    Entry entry = EntryFor(call.get(), Collective::kBroadcast, "state", {3});
    entry.request.Edit()->root = 0;
    entry.allocate = nullptr;
    job_->Submit(std::move(entry));
    if (!call->Wait().ok()) return false;
    if (rank != 0) state_ = {call->out[0], call->out[1]};
    kept_ = state_;
    return true;
  }

  bool Steps() {
    while (state_[0] < kSteps) {
      const auto call = Reduce(job_, "gradient", 3, ValueOf(member_));
      if (!call->Wait().ok()) return false;
      state_ = {state_[0] + 1, std::fmod(3 * state_[1] + call->out[0], 1009.0f)};
      reached = std::max<int>(reached, static_cast<int>(state_[0]));
      if (static_cast<int>(state_[0]) % 5 != 0) continue;
      if (!Reduce(job_, "commit", 1, 1.0f)->Wait().ok()) return false;
      kept_ = state_;
    }
    return true;
  }

  ElasticJob* const job_;
  const int member_;
  std::vector<float> state_ = {0.0f, 0.0f}, kept_ = state_;  // steps, and a value of all of them
  bool done_ = false;
};

TEST(AJobOfAcceleratorsEndsWithOneStateOnAllSurvivors) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    ElasticRanks ranks(4);
    std::vector<std::unique_ptr<TrainedByCommits>> all;
    for (int member = 0; member < 4; ++member) {
      all.push_back(std::make_unique<TrainedByCommits>(ranks.job(member), member));
    }
    std::vector<std::thread> threads;
    for (auto& one : all) threads.emplace_back([&one] { one->Train(); });
    std::vector<int> order = AllOf(4);
    std::shuffle(order.begin(), order.end(), random);
    const int last = order[3];
    for (int loss = 0; loss < 2; ++loss) {
      // The second one may come while they go back for the first.
      const int at = loss == 0 ? static_cast<int>(random() % 300) : all[last]->reached.load();
      while (all[last]->reached < at) std::this_thread::sleep_for(std::chrono::microseconds(50));
      ranks.Kill(order[static_cast<size_t>(loss)]);
      ranks.Announce(
          [&] { std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int member : {order[2], last}) {
      EXPECT_TRUE(all[static_cast<size_t>(member)]->done());
      EXPECT_EQ(all[static_cast<size_t>(member)]->step(), TrainedByCommits::kSteps);
    }
    EXPECT_EQ(all[static_cast<size_t>(order[2])]->value(), all[static_cast<size_t>(last)]->value());
    ranks.End();
  }
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

// A rank that does not learn what the ranks have told each other.
class FailsAfterGather : public WrappedCommunicator {
 public:
  explicit FailsAfterGather(std::unique_ptr<Communicator> inner)
      : WrappedCommunicator(std::move(inner), [](const auto& reduce) { return reduce(); }) {}

  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    TFHVD_RETURN_IF_ERROR(WrappedCommunicator::AllGather(in, out, bytes));
    return Status::Aborted("member 2 is lost");
  }
};

std::unique_ptr<Call> Gather(ElasticJob* job, bool has_memory, float value) {
  auto call = std::make_unique<Call>();
  call->in.assign(3, value);
  Entry entry = EntryFor(call.get(), Collective::kAllGather, "a", {3});
  if (!has_memory) {
    entry.allocate = [](int, const Shape&, void**) { return Status::Unavailable("no memory"); };
  }
  job->Submit(std::move(entry));
  return call;
}

// The next collective of that name is not taken for the one that has failed.
TEST(AFailureThatRanksHaveAgreedOnIsOneOfTheSameCollective) {
  for (int late = 0; late < 2; ++late) {
    ElasticRanks ranks(3, [late](int member, std::unique_ptr<Communicator> inner) {
      if (member == late) inner = std::make_unique<FailsAfterGather>(std::move(inner));
      return inner;
    });
    std::vector<std::unique_ptr<Call>> first;
    for (int member = 0; member < 3; ++member) {
      first.push_back(Gather(ranks.job(member), /*has_memory=*/member != 1, ValueOf(member)));
    }
    const std::string says =
        "allgather 'a' has failed on every rank: rank 1 cannot get the 36 bytes";
    const int other = 1 - late;
    EXPECT_ERROR(first[static_cast<size_t>(other)]->Wait(), StatusCode::kUnavailable, says);
    ranks.Kill(2);
    const auto next = Gather(ranks.job(other), /*has_memory=*/true, 8.0f);
    ranks.Announce([] {});
    EXPECT_ERROR(first[static_cast<size_t>(late)]->Wait(), StatusCode::kUnavailable, says);
    const auto last = Gather(ranks.job(late), /*has_memory=*/true, 8.0f);
    for (const auto* call : {&next, &last}) {
      EXPECT_OK((*call)->Wait());
      EXPECT_EQ((*call)->out, std::vector<float>(6, 8.0f));
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
            "rank 0 failed; ranks 2, 3 join; the job continues with 4 ranks "
            "(generation 4).");
  after.members = {5};
  EXPECT_EQ(Describe(Compare(before, after), after),
            "ranks 0, 1 failed; the job continues with 1 rank (generation 4).");
}

// What has been retained of results, and not been let go of.
struct Retention {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> most{0};

  std::shared_ptr<void> Take(int64_t size) {
    const int64_t now = bytes += size;
    int64_t before = most.load();
    while (before < now && !most.compare_exchange_weak(before, now)) {
    }
    return std::shared_ptr<void>(this, [size](Retention* retention) { retention->bytes -= size; });
  }
};

constexpr int64_t kSmallest = 16 << 10;  // what a result counts at the least

// Every rank calls a collective of `kind` so often, of `rows` floats each.
void CallOften(ElasticJob* job, Collective kind, int times, int64_t rows, Retention* retention) {
  for (int i = 0; i < times; ++i) {
    Call call;
    call.in.assign(static_cast<size_t>(rows), 1.0f);
    call.out.assign(static_cast<size_t>(rows), 1.0f);
    Entry entry = EntryFor(&call, kind, "again", {rows});
    const bool late = kind == Collective::kAllGather || kind == Collective::kReduceScatter ||
                      kind == Collective::kAllToAll;
    if (late) entry.outputs[0] = nullptr;
    if (!late) entry.allocate = nullptr;
    if (kind == Collective::kBarrier || kind == Collective::kJoin) {
      entry.request.Edit()->tensors.clear();
      entry.inputs = {};
      entry.outputs = {};
      call.out.clear();
    }
    entry.request.Edit()->reduction.op = ReduceOp::kSum;
    entry.retain = [&call, retention](Retained) {
      const auto bytes = static_cast<int64_t>(call.out.size() * sizeof(float));
      return retention->Take(std::max(kSmallest, bytes));
    };
    job->Submit(std::move(entry));
    ASSERT_OK(call.Wait());
  }
}

constexpr Collective kResultKinds[] = {
    Collective::kAllReduce,     Collective::kAllGather, Collective::kBroadcast, Collective::kAdasum,
    Collective::kReduceScatter, Collective::kAllToAll,  Collective::kBarrier,   Collective::kJoin};

TEST(ResultsThatAreHeldAreBoundedWhicheverCollectivesAreCalled) {
  constexpr int64_t kRows = 1 << 18;
  constexpr int64_t kResult = 2 * kRows * sizeof(float);  // the largest: gathered from two
  for (const Collective kind : kResultKinds) {
    Retention retentions[2];
    ElasticRanks ranks(2);
    RunThreads(2, [&](int member) {
      Retention* const retention = &retentions[member];
      CallOften(ranks.job(member), kind, 60, kRows, retention);
      CallOften(ranks.job(member), kind, 2500, 0, retention);
    });
    for (const Retention& retention : retentions) {
      EXPECT_TRUE(retention.most.load() <= (int64_t{32} << 20) + kResult);
    }
    ranks.End();
  }
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

TEST(SurvivorsGetEvenWhicheverRootIsLost) {
  Training of;
  of.steps = 20;
  of.broadcasts = true;
  for (unsigned seed = 0; seed < (kSanitizer ? 15u : 100u); ++seed) Survive(seed, of);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
