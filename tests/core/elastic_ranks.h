// Jobs that go on without the ranks that they lose, and with those that come, as threads over the
// inproc backend; a rank is lost when its engine ends without a word. And what they are put through
// at random: the same for the same seed, but for how threads meet.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/elastic/elastic_job.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

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

inline std::unique_ptr<Call> Reduce(ElasticJob* job, const std::string& name, size_t n, float value,
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

inline std::unique_ptr<Call> FromRoot(ElasticJob* job, const std::string& name, int root,
                                      float value) {
  auto call = std::make_unique<Call>();
  call->in.assign(3, value);
  call->out.assign(3, -1.0f);
  Entry entry = EntryFor(call.get(), Collective::kBroadcast, name, {3});
  entry.request.Edit()->root = root;
  entry.allocate = nullptr;
  job->Submit(std::move(entry));
  return call;
}

constexpr int kNone = -2;
// The first generation after this one, for which it waits; kNone: there will be none.
inline int GenerationAfter(int generation, ElasticJob* job) {
  const auto until = Clock::now() + std::chrono::seconds(30);
  std::optional<int> latest = generation;
  while (latest.value_or(generation + 1) <= generation && Clock::now() < until) {
    latest = job->WaitForGeneration(generation, std::chrono::seconds(1));
  }
  return latest.value_or(kNone);
}

// Every set of members has another sum.
inline float ValueOf(int member) { return static_cast<float>(1 << member); }

// All of them sum up so many times, each under a name that may have been used before.
inline void ExpectSums(ElasticRanks* ranks, const std::vector<int>& members, int times) {
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

// One rank's results: by step, and then by name.
using Results = std::vector<std::vector<float>>;

// How much a job trains: of the tensors of a step the first is `large`, and the others are small
// ones that share a call.
struct Training {
  int ranks = 4;
  int steps = 60;
  int tensors = 5;
  size_t large = 200000;
  bool broadcasts = false;  // whether a step is two broadcasts instead
};

// Steps of training until their end or the rank's own.
inline void Train(ElasticJob* job, int member, const Training& of, unsigned seed, Results* results,
                  std::atomic<int>* reached) {
  std::mt19937 random(seed);
  for (int step = 0; step < of.steps; ++step) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int name = 0; name < of.tensors; ++name) {
      const size_t size = name == 0 ? of.large : 3 + static_cast<size_t>(name);
      calls.push_back(Reduce(job, "gradient" + std::to_string(name), size, ValueOf(member)));
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

// Steps in which all get even with the first rank by one broadcast after the other; where the root
// of one is lost, all begin the step anew.
inline void GetEven(ElasticJob* job, int member, const Training& of, unsigned seed,
                    Results* results, std::atomic<int>* reached) {
  std::mt19937 random(seed);
  for (int step = 0; step < of.steps; ++step) {
    std::vector<float> got;
    while (got.size() < 2) {
      const std::string name = got.empty() ? "weights" : "objects";
      const auto call = FromRoot(job, name, 0, ValueOf(member) + 100.0f * static_cast<float>(step));
      const Status status = call->Wait();
      if (status.ok()) {
        got.push_back(call->out[0]);
      } else if (status.code() == StatusCode::kDataLoss) {
        got.clear();
        if (!Reduce(job, "anew", 1, 1.0f)->Wait().ok()) return;
      } else {
        return;  // this rank is lost
      }
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
    results->push_back(got);
    reached->store(step);
  }
}

// Ranks are lost at some time, one after the other: the survivors make all steps, have the same
// results, and each is the sum of members that were there.
inline void Survive(unsigned seed, const Training& of = Training()) {
  std::mt19937 random(seed);
  ElasticRanks ranks(of.ranks);
  std::vector<Results> results(static_cast<size_t>(of.ranks));
  std::vector<std::atomic<int>> reached(static_cast<size_t>(of.ranks));
  std::vector<std::thread> threads;
  for (int member = 0; member < of.ranks; ++member) {
    threads.emplace_back(of.broadcasts ? GetEven : Train, ranks.job(member), member, of,
                         seed + 1000u * member, &results[static_cast<size_t>(member)],
                         &reached[static_cast<size_t>(member)]);
  }
  std::vector<int> victims = AllOf(of.ranks);
  std::shuffle(victims.begin(), victims.end(), random);
  victims.resize(1 + random() % static_cast<unsigned>(of.ranks - 1));
  std::set<float> sums;  // of the sets of members that there were
  float sum = ValueOf(of.ranks) - 1.0f;
  sums.insert(sum);
  const auto nap = [&random](unsigned most) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
  };
  int from = 0;
  for (const int victim : victims) {
    from += static_cast<int>(random() % static_cast<unsigned>(1 + of.steps / 4));
    while (reached[static_cast<size_t>(victim)] < from && from < of.steps) nap(200);
    nap(500);
    ranks.Kill(victim);
    sum -= ValueOf(victim);
    sums.insert(sum);
    if (random() % 2 == 0) nap(2000);
    ranks.Announce([&] { nap(300); });
  }
  for (std::thread& thread : threads) thread.join();
  const std::set<int> lost(victims.begin(), victims.end());
  const int last = static_cast<int>(victims.size());
  for (int member = 0; member < of.ranks; ++member) {
    // Else its engine would wait for one that was lost last, without a word.
    if (lost.count(member) == 0) EXPECT_EQ(GenerationAfter(last - 1, ranks.job(member)), last);
  }
  ranks.End();
  const Results* first = nullptr;
  for (int member = 0; member < of.ranks; ++member) {
    if (lost.count(member) > 0) continue;
    const Results& own = results[static_cast<size_t>(member)];
    EXPECT_EQ(own.size(), static_cast<size_t>(of.steps));
    if (first == nullptr) first = &own;
    EXPECT_TRUE(own == *first);
    if (of.broadcasts) continue;
    for (const std::vector<float>& step : own) {
      for (const float value : step) EXPECT_TRUE(sums.count(value) > 0);
    }
  }
}

// Members come, and are lost, in any order; whoever is in makes each round with all others.
inline void ComeAndGo(unsigned seed, int rounds = 8) {
  std::mt19937 random(seed);
  ElasticRanks ranks(2);
  std::vector<int> members = {0, 1};
  for (int round = 0; round < rounds; ++round) {
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

}  // namespace testing
}  // namespace tfhvd
