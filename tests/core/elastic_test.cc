// Jobs that go on without the ranks that they lose, and with those that come. Ranks are threads
// over the inproc backend; one is lost when its engine ends without a word.
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cc/elastic/elastic_job.h"
#include "cc/elastic/roster_change.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"
#include "tests/core/wrapped_communicator.h"

namespace tfhvd {
namespace testing {
namespace {

using Clock = std::chrono::steady_clock;

class FakeMembership : public Membership {
 public:
  void Add(Roster roster) {
    const MutexLock lock(&mutex_);
    latest_ = std::move(roster);
    changed_.NotifyAll();
  }
  void End(const Status& why) {
    const MutexLock lock(&mutex_);
    over_ = why;
    changed_.NotifyAll();
  }
  Status Next(int generation, std::chrono::nanoseconds most,
              std::optional<Roster>* roster) override {
    const auto until = Clock::now() + most;
    const MutexLock lock(&mutex_);
    while (over_.ok() && !(latest_.has_value() && latest_->generation > generation)) {
      if (Clock::now() >= until) return Status::Ok();
      changed_.WaitFor(&mutex_, until - Clock::now());
    }
    if (over_.ok()) *roster = latest_;
    return over_;
  }
  bool HasNext(int generation) override {
    const MutexLock lock(&mutex_);
    return !over_.ok() || (latest_.has_value() && latest_->generation > generation);
  }
  int waiting() const override { return 0; }
  void Stop() override { End(Status::Aborted("stopped")); }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Roster> latest_ TFHVD_GUARDED_BY(mutex_);
  Status over_ TFHVD_GUARDED_BY(mutex_);
};

// The world and the engine of one generation, on one rank.
struct Generation {
  std::unique_ptr<World> world;
  std::unique_ptr<Engine> engine;
};

class ElasticRanks {
 public:
  // `around`: put around the first communicator of each member.
  using Around = std::function<std::unique_ptr<Communicator>(int, std::unique_ptr<Communicator>)>;

  explicit ElasticRanks(int size, Around around = nullptr) : around_(std::move(around)) {
    std::vector<int> members = AllOf(size);
    groups_[0] = std::make_unique<InprocGroup>(size);
    for (int member = 0; member < size; ++member) {
      memberships_.push_back(std::make_unique<FakeMembership>());
      jobs_.push_back(nullptr);
    }
    RunThreads(size, [&](int member) {
      Roster roster;
      roster.rank = member;
      roster.members = members;
      std::shared_ptr<Engine> engine;
      ASSERT_OK(Open(roster, nullptr, nullptr, &engine));
      jobs_[static_cast<size_t>(member)] = MakeJob(roster, engine, member);
    });
    members_ = members;
  }

  ElasticJob* job(int member) { return jobs_[static_cast<size_t>(member)].get(); }
  FakeMembership* membership(int member) { return memberships_[static_cast<size_t>(member)].get(); }

  // It ends without a word.
  void Kill(int member) {
    job(member)->Stop();
    if (job(member)->engine() != nullptr) {
      job(member)->engine()->Abandon(Status::Aborted("killed"));
    }
    members_.erase(std::find(members_.begin(), members_.end(), member));
  }

  // Another one comes, and waits; its number. It is in with the next roster.
  int Add() {
    const int member = static_cast<int>(jobs_.size());
    memberships_.push_back(std::make_unique<FakeMembership>());
    Roster none;
    none.generation = -1;
    jobs_.push_back(MakeJob(none, nullptr, member));
    members_.push_back(member);
    return member;
  }

  // Says to all members who takes part, to each after a delay.
  void Announce(const std::function<void()>& between) {
    Roster roster;
    roster.generation = ++generation_;
    roster.members = members_;
    {
      const MutexLock lock(&mutex_);
      groups_[generation_] = std::make_unique<InprocGroup>(roster.size());
    }
    for (int rank = 0; rank < roster.size(); ++rank) {
      roster.rank = rank;
      membership(members_[static_cast<size_t>(rank)])->Add(roster);
      between();
    }
  }

  // All that are left end in order.
  void End() {
    RunThreads(static_cast<int>(jobs_.size()), [&](int member) {
      job(member)->Stop();
      if (job(member)->engine() == nullptr) return;
      job(member)->engine()->Leave("");
      (void)job(member)->engine()->WaitUntilOver(60.0);
    });
  }

 private:
  std::unique_ptr<ElasticJob> MakeJob(const Roster& roster, std::shared_ptr<Engine> engine,
                                      int member) {
    return std::make_unique<ElasticJob>(
        roster, std::move(engine), memberships_[static_cast<size_t>(member)].get(),
        [this](const Roster& next, WaitMonitor* monitor, const ElasticJob::Reconcile& reconcile,
               std::shared_ptr<Engine>* opened) { return Open(next, monitor, reconcile, opened); },
        Log(LogLevel::kFatal, member), std::chrono::seconds(2));
  }

  Status Open(const Roster& roster, WaitMonitor* monitor, const ElasticJob::Reconcile& reconcile,
              std::shared_ptr<Engine>* engine) {
    const auto generation = std::make_shared<Generation>();
    int rank = roster.rank;
    {
      const MutexLock lock(&mutex_);
      generation->world = groups_[roster.generation]->OpenWorld(rank);
    }
    World* const world = generation->world.get();
    world->SetWaitMonitor(monitor);
    std::unique_ptr<ControlPlane> control;
    std::unique_ptr<Communicator> communicator;
    TFHVD_RETURN_IF_ERROR(world->OpenControlPlane(&control));
    TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(AllOf(world->size()), &communicator));
    communicator->SetWaitMonitor(monitor);
    if (reconcile) TFHVD_RETURN_IF_ERROR(reconcile(communicator.get()));
    if (around_ && roster.generation == 0) communicator = around_(rank, std::move(communicator));
    Topology topology = MakeTopology(rank, std::vector<std::string>(world->size(), "here"));
    generation->engine = std::make_unique<Engine>(
        Config(), Log(LogLevel::kFatal, rank), std::move(topology), std::move(control),
        std::move(communicator), Accelerator(),
        [world](const std::vector<int>& members, std::unique_ptr<Communicator>* out) {
          return world->OpenCommunicator(members, out);
        });
    world->SetWaitMonitor(nullptr);
    *engine = std::shared_ptr<Engine>(generation, generation->engine.get());
    return Status::Ok();
  }

  const Around around_;
  Mutex mutex_;
  std::map<int, std::unique_ptr<InprocGroup>> groups_ TFHVD_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<FakeMembership>> memberships_;
  std::vector<std::unique_ptr<ElasticJob>> jobs_;
  std::vector<int> members_;
  int generation_ = 0;
};

std::unique_ptr<Call> Reduce(ElasticJob* job, const std::string& name, size_t n, float value,
                             bool in_place = false) {
  auto call = std::make_unique<Call>();
  call->in.assign(in_place ? 0 : n, value);
  call->out.assign(n, value);
  Entry entry = EntryFor(call.get(), Collective::kAllReduce, name, {static_cast<int64_t>(n)});
  if (in_place) entry.inputs[0] = call->out.data();
  entry.request.Edit()->reduction.op = ReduceOp::kSum;
  entry.allocate = nullptr;
  job->Submit(std::move(entry));
  return call;
}

constexpr int kNone = -2;
// The first generation after this one, for which it waits; kNone: there will be none.
int GenerationAfter(int generation, ElasticJob* job) {
  const auto until = Clock::now() + std::chrono::seconds(30);
  std::optional<int> latest = generation;
  while (latest.value_or(generation + 1) <= generation && Clock::now() < until) {
    latest = job->WaitForGeneration(generation, std::chrono::seconds(1));
  }
  return latest.value_or(kNone);
}

// Every set of members has another sum.
float ValueOf(int member) { return static_cast<float>(1 << member); }

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

// All of them sum up so many times, each under a name that may have been used before.
void ExpectSums(ElasticRanks* ranks, const std::vector<int>& members, int times) {
  float sum = 0.0f;
  for (const int member : members) sum += ValueOf(member);
  for (int i = 0; i < times; ++i) {
    std::vector<std::unique_ptr<Call>> calls;
    for (const int member : members) {
      calls.push_back(Reduce(ranks->job(member), "a", 9, ValueOf(member)));
    }
    for (const auto& call : calls) {
      EXPECT_OK(call->Wait());
      EXPECT_EQ(call->out, std::vector<float>(9, sum));
    }
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

// One rank's results: by step, and then by name.
using Results = std::vector<std::vector<float>>;

constexpr int kNames = 5;
// Small ones that share a call, and one that has its own.
size_t SizeOf(int name) { return name == 0 ? 200000 : 3 + static_cast<size_t>(name); }
// Steps of training until `stop` or the rank's own end.
void Train(ElasticJob* job, int member, int steps, unsigned seed, Results* results,
           std::atomic<int>* reached) {
  std::mt19937 random(seed);
  for (int step = 0; step < steps; ++step) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int name = 0; name < kNames; ++name) {
      calls.push_back(
          Reduce(job, "gradient" + std::to_string(name), SizeOf(name), ValueOf(member)));
    }
    std::vector<float> sums;
    bool lost = false;
    for (const auto& call : calls) {
      lost = !call->Wait().ok() || lost;
      sums.push_back(call->out[0]);
      for (const float value : call->out) {
        if (value != call->out[0]) sums.back() = -1.0f;
      }
    }
    if (lost) return;
    results->push_back(sums);
    reached->store(step);
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
}

// Ranks are lost at some time, one after the other: the survivors make all steps, have the same
// results, and each is the sum of members that were there.
void Survive(unsigned seed) {
  constexpr int kRanks = 4;
  constexpr int kSteps = 60;
  std::mt19937 random(seed);
  ElasticRanks ranks(kRanks);
  std::vector<Results> results(kRanks);
  std::vector<std::atomic<int>> reached(kRanks);
  std::vector<std::thread> threads;
  for (int member = 0; member < kRanks; ++member) {
    threads.emplace_back(Train, ranks.job(member), member, kSteps, seed + 1000u * member,
                         &results[static_cast<size_t>(member)],
                         &reached[static_cast<size_t>(member)]);
  }
  std::vector<int> victims = AllOf(kRanks);
  std::shuffle(victims.begin(), victims.end(), random);
  victims.resize(1 + random() % (kRanks - 1));
  std::set<float> sums;  // of the sets of members that there were
  float sum = 15.0f;
  sums.insert(sum);
  const auto nap = [&random](unsigned most) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
  };
  int from = 0;
  for (const int victim : victims) {
    from += static_cast<int>(random() % 15);
    while (reached[static_cast<size_t>(victim)] < from && from < kSteps) nap(200);
    nap(500);
    ranks.Kill(victim);
    sum -= ValueOf(victim);
    sums.insert(sum);
    if (random() % 2 == 0) nap(2000);
    ranks.Announce([&] { nap(300); });
  }
  for (std::thread& thread : threads) thread.join();
  ranks.End();
  const std::set<int> lost(victims.begin(), victims.end());
  const Results* first = nullptr;
  for (int member = 0; member < kRanks; ++member) {
    if (lost.count(member) > 0) continue;
    const Results& own = results[static_cast<size_t>(member)];
    EXPECT_EQ(own.size(), size_t{kSteps});
    if (first == nullptr) first = &own;
    EXPECT_TRUE(own == *first);
    for (const std::vector<float>& step : own) {
      for (const float value : step) EXPECT_TRUE(sums.count(value) > 0);
    }
  }
}

// Members come, and are lost, in any order; whoever is in makes each round with all others.
void ComeAndGo(unsigned seed) {
  std::mt19937 random(seed);
  ElasticRanks ranks(2);
  std::vector<int> members = {0, 1};
  for (int round = 0; round < 8; ++round) {
    // Once at least: where those that were in are lost before others are, there is nothing to join.
    ExpectSums(&ranks, members, 1 + static_cast<int>(random() % 2));
    const bool comes = members.size() < 2 || (members.size() < 5 && random() % 2 == 0);
    std::vector<std::unique_ptr<Call>> waits;
    if (comes) {
      for (const int member : members) {
        EXPECT_TRUE(ranks.job(member)->WaitUntilIdle(std::chrono::seconds(30)));
      }
      members.push_back(ranks.Add());
    } else {
      const auto victim = members.begin() + static_cast<int64_t>(random() % members.size());
      ranks.Kill(*victim);
      members.erase(victim);
      const int waiting = members[random() % members.size()];
      waits.push_back(Reduce(ranks.job(waiting), "b", 9, 1.0f));
      for (const int member : members) {
        if (member != waiting) waits.push_back(Reduce(ranks.job(member), "b", 9, 1.0f));
      }
    }
    ranks.Announce([&] { std::this_thread::sleep_for(std::chrono::microseconds(random() % 300)); });
    // Else those that were there before could go on without who comes.
    for (const int member : comes ? members : std::vector<int>()) {
      EXPECT_EQ(GenerationAfter(round, ranks.job(member)), round + 1);
    }
    for (const auto& call : waits) {
      EXPECT_OK(call->Wait());
      EXPECT_EQ(call->out, std::vector<float>(9, static_cast<float>(members.size())));
    }
  }
  ExpectSums(&ranks, members, 2);
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
