// Engines whose ranks are threads that take themselves to be on one or several hosts, with the
// means that a process chooses there: shared memory within a host, something slower across.
#include <algorithm>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/rendezvous/transport_selector.h"
#include "tests/core/no_memory.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Hosts = std::vector<std::string>;

// Runs `body(engine)` on every rank; rank r is on hosts[r].
template <typename Body>
void OnHosts(const Hosts& hosts, const Body& body, const Config& config = Config()) {
  const int size = static_cast<int>(hosts.size());
  OnWorlds(size, [&](World* world) {
    std::unique_ptr<ControlPlane> control;
    std::unique_ptr<Communicator> communicator;
    ASSERT_OK(world->OpenControlPlane(&control));
    ASSERT_OK(world->OpenCommunicator(AllOf(size), &communicator));
    const Topology topology = MakeTopology(world->rank(), hosts);
    const Log log(LogLevel::kFatal, world->rank());
    ASSERT_OK(SelectTransport(config, topology, log, world, &communicator, &control));
    Engine engine(config, log, topology, std::move(control), std::move(communicator), {},
                  MakeCommunicatorFactory(config, topology, log, world));
    body(&engine);
  });
}

// An allreduce in flight of one tensor, all elements of which are `value`.
struct Call {
  std::vector<float> data;
  std::promise<Status> promise;
};

std::unique_ptr<Call> Sum(Engine* engine, const std::string& name, int64_t count, float value,
                          int32_t process_set = 0) {
  auto call = std::make_unique<Call>();
  call->data.assign(static_cast<size_t>(count), value);
  Entry entry;
  entry.request.Edit()->key = {process_set, name};
  entry.request.Edit()->tensors = {{DType::kFloat32, {count}}};
  entry.inputs = {call->data.data()};
  entry.outputs = {call->data.data()};
  entry.done = [promise = &call->promise](const Status& s) { promise->set_value(s); };
  engine->Submit(std::move(entry));
  return call;
}

void ExpectSum(Call* call, float sum) {
  EXPECT_OK(call->promise.get_future().get());
  EXPECT_TRUE(std::all_of(call->data.begin(), call->data.end(), [&](float x) { return x == sum; }));
}

// What is said of so many tensors is longer than what shared memory holds between two ranks: the
// first collectives must not begin before everybody has heard of them.
void SumsManyNewTensors(const Hosts& hosts) {
  OnHosts(hosts, [](Engine* engine) {
    const Topology& topology = engine->topology();
    std::vector<int> order = AllOf(2000);
    std::mt19937 random(static_cast<unsigned>(topology.rank));
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::unique_ptr<Call>> calls(order.size());
    for (const int i : order) {
      const std::string name = std::string(100, 'x') + std::to_string(i);
      calls[static_cast<size_t>(i)] = Sum(engine, name, 5, static_cast<float>(i));
    }
    for (int i = 0; i < static_cast<int>(calls.size()); ++i) {
      ExpectSum(calls[static_cast<size_t>(i)].get(), static_cast<float>(i * topology.size));
    }
  });
}

TEST(ManyNewTensorsOnOneHost) {
  for (const int size : {2, 3}) SumsManyNewTensors(Hosts(static_cast<size_t>(size), "a"));
}
TEST(ManyNewTensorsOnSeveralHosts) {
  for (const Hosts& hosts :
       {Hosts{"a", "a", "b", "b"}, Hosts{"a", "a", "a", "b"}, Hosts{"a", "b", "b", "a", "c"}}) {
    SumsManyNewTensors(hosts);
  }
}

// Steps of the same tensors, in an order that differs from rank to rank and step to step.
TEST(StepsInAnyOrder) {
  for (const Hosts& hosts :
       {Hosts{"a", "a", "b", "b"}, Hosts{"a", "b", "a", "a"}, Hosts{"a", "b"}}) {
    OnHosts(hosts, [](Engine* engine) {
      const Topology& topology = engine->topology();
      std::vector<int> order = AllOf(20);
      std::mt19937 random(static_cast<unsigned>(topology.rank));
      for (int step = 0; step < 50; ++step) {
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::unique_ptr<Call>> calls(order.size());
        for (const int i : order) {
          const int64_t count = i % 5 == 0 ? 70000 : 3;
          calls[static_cast<size_t>(i)] =
              Sum(engine, std::to_string(i), count, static_cast<float>(i + step));
        }
        for (const int i : order) {
          ExpectSum(calls[static_cast<size_t>(i)].get(),
                    static_cast<float>((i + step) * topology.size));
        }
      }
    });
  }
}

int32_t Added(Engine* engine, const std::vector<int64_t>& members) {
  std::promise<Status> promise;
  int64_t number = -1;
  Entry entry;
  entry.request.Edit()->key.name = "tfhvd.process_sets";
  entry.request.Edit()->kind = Collective::kAddProcessSet;
  entry.request.Edit()->members = members;
  entry.EditExtras()->number = [&](int64_t n) { number = n; };
  entry.done = [&](const Status& s) { promise.set_value(s); };
  engine->Submit(std::move(entry));
  EXPECT_OK(promise.get_future().get());
  return static_cast<int32_t>(number);
}

// Sums in sets of ranks of several hosts. The first one adds up within its hosts before it does
// across where the means are those of the whole job, which floats show: 2^24 + 1 is no float.
void SumsInSets(const Config& config, float expected) {
  OnHosts(
      {"a", "b", "a", "b", "c"},
      [expected](Engine* engine) {
        const int rank = engine->topology().rank;
        const float values[] = {1 << 24, 1.0f, 0.0f, 1.0f};
        const std::vector<std::vector<int64_t>> sets = {{0, 1, 2, 3}, {0, 2}, {1, 4}, {1, 3, 4}};
        std::vector<int32_t> numbers;
        for (const auto& members : sets) numbers.push_back(Added(engine, members));
        for (size_t i = 0; i < sets.size(); ++i) {
          if (std::find(sets[i].begin(), sets[i].end(), rank) == sets[i].end()) continue;
          for (const int64_t count : {3, 70000}) {
            const std::string name = "x" + std::to_string(count);
            const float value = i == 0 ? values[rank] : 1.0f;
            ExpectSum(Sum(engine, name, count, value, numbers[i]).get(),
                      i == 0 ? expected : static_cast<float>(sets[i].size()));
          }
        }
        ExpectSum(Sum(engine, "all", 1, 1.0f).get(), 5.0f);  // nobody leaves before
      },
      config);
}

TEST(SetsOverHostsTalkAsTheJobDoes) {
  SumsInSets(Config(), (1 << 24) + 2);
  Config flat;
  flat.cpu_operations = CpuOperations::kMpi;
  SumsInSets(flat, 1 << 24);
  const NoMemory none;
  SumsInSets(Config(), 1 << 24);
}

// What a process says where the wanted transport is impossible; the same on every rank.
void Refused(CpuOperations wanted, const Hosts& hosts, const std::string& text) {
  OnWorlds(static_cast<int>(hosts.size()), [&](World* world) {
    Config config;
    config.cpu_operations = wanted;
    std::unique_ptr<ControlPlane> control;
    std::unique_ptr<Communicator> communicator;
    ASSERT_OK(world->OpenControlPlane(&control));
    ASSERT_OK(world->OpenCommunicator(AllOf(world->size()), &communicator));
    EXPECT_ERROR(
        SelectTransport(config, MakeTopology(world->rank(), hosts),
                        Log(LogLevel::kFatal, world->rank()), world, &communicator, &control),
        StatusCode::kUnavailable, text);
    EXPECT_TRUE(communicator != nullptr && control != nullptr);
  });
}

TEST(WhatCannotBeHadIsSaid) {
  Refused(CpuOperations::kShm, {"a", "a", "b"},
          "TFHVD_CPU_OPERATIONS=shm is not possible: the ranks "
          "are on several hosts");
  Refused(CpuOperations::kHierarchical, {"a", "a"}, "all ranks are on one host");
  Refused(CpuOperations::kHierarchical, {"a", "b"}, "every host has one rank");
}

// Without memory to share, the launcher's transport does.
TEST(LackOfMemoryIsNoError) {
  const NoMemory none;
  for (const Hosts& hosts : {Hosts{"a", "a"}, Hosts{"a", "a", "b"}}) {
    OnHosts(hosts, [](Engine* engine) {
      ExpectSum(Sum(engine, "x", 9, 2.0f).get(),
                2.0f * static_cast<float>(engine->topology().size));
    });
  }
}

TEST(MpiMayBeWantedAnywhere) {
  Config config;
  config.cpu_operations = CpuOperations::kMpi;
  OnHosts(
      {"a", "a", "b"}, [](Engine* engine) { ExpectSum(Sum(engine, "x", 9, 2.0f).get(), 6.0f); },
      config);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
