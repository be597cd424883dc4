// Engines with GPUs, on the fakes: order with a framework's slow stream, both kinds of tensors
// in one job, and what a failure on the GPU does to the job.
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/nccl/nccl_communicator.h"
#include "cc/collectives/staged_communicator.h"
#include "cc/engine/engine.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// As the process makes it where there is all that NCCL needs.
class NcclBackend : public Backend {
 public:
  explicit NcclBackend(CudaDevice* device) : device_(*device) {
    EXPECT_OK(LoadNccl(FakeGpuLibrary(), "", &api_));
  }
  const char* name() const override { return "nccl"; }
  Status Open(Communicator* host, std::unique_ptr<Communicator>* out) override {
    return NcclCommunicator::Make(api_, &device_, host, MakeStagedCommunicator(&device_, host), {},
                                  out);
  }

 private:
  NcclApi api_;
  CudaDevice& device_;  // Not owned.
};

// A rank: its engine, and two streams that belong to the framework.
class Rank {
 public:
  Rank(World* world, const CudaDriver& driver) : driver_(driver) {
    const int rank = world->rank();
    EXPECT_EQ(driver.cuDevicePrimaryCtxRetain(&context, rank), cuda::kSuccess);
    {
      const CudaScope scope(driver, context);
      for (cuda::Stream* made : {&stream, &other}) {
        EXPECT_EQ(driver.cuStreamCreateWithPriority(made, cuda::kStreamNonBlocking, 0),
                  cuda::kSuccess);
      }
    }
    std::unique_ptr<ControlPlane> control;
    std::unique_ptr<Communicator> comm;
    EXPECT_OK(world->OpenControlPlane(&control));
    EXPECT_OK(world->OpenCommunicator(AllOf(world->size()), &comm));
    auto device = std::make_unique<CudaDevice>(driver);
    auto backend = std::make_unique<NcclBackend>(device.get());
    Config config;
    config.shutdown_timeout = 0.2;
    const std::vector<std::string> hosts(static_cast<size_t>(world->size()), "host");
    engine = std::make_unique<Engine>(
        config, Log(LogLevel::kFatal, rank), MakeTopology(rank, hosts), std::move(control),
        std::move(comm), Accelerator{std::move(device), std::move(backend)});
  }
  ~Rank() {
    engine.reset();
    const CudaScope scope(driver_, context);
    driver_.cuStreamDestroy_v2(stream);
    driver_.cuStreamDestroy_v2(other);
  }

  std::unique_ptr<GpuMemory> Allocate(int64_t bytes) const {
    return std::make_unique<GpuMemory>(&driver_, context, bytes);
  }
  // What the framework does: enqueued, not waited for.
  void CopyToGpu(char* to, const std::vector<float>& from) const {
    const CudaScope scope(driver_, context);
    EXPECT_EQ(driver_.cuMemcpyHtoDAsync_v2(reinterpret_cast<uintptr_t>(to), from.data(),
                                           from.size() * sizeof(float), stream),
              cuda::kSuccess);
  }
  std::vector<float> CopyBack(const char* from, int64_t count) const {
    std::vector<float> values(static_cast<size_t>(count));
    const CudaScope scope(driver_, context);
    EXPECT_EQ(driver_.cuMemcpyDtoHAsync_v2(values.data(), reinterpret_cast<uintptr_t>(from),
                                           values.size() * sizeof(float), stream),
              cuda::kSuccess);
    Synchronize(stream);
    return values;
  }
  // Returns when one of the framework's streams has done all that it was asked for.
  void Synchronize(cuda::Stream of) const {
    const CudaScope scope(driver_, context);
    auto events = std::make_shared<CudaEvents>(driver_, context);
    std::shared_ptr<void> mark;
    EXPECT_OK(events->Record(of, &mark));
    while (driver_.cuEventQuery(static_cast<cuda::Event>(mark.get())) == cuda::kNotReady) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  cuda::Stream other = nullptr;
  std::unique_ptr<Engine> engine;

 private:
  const CudaDriver& driver_;
};

// An entry's end, seen from the thread that submits it.
struct Outcome {
  std::atomic<bool> done{false};
  Status status;
  void Wait() const {
    while (!done.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
};

Entry SumInPlace(const std::string& name, char* memory, int64_t count, Rank* rank,
                 Outcome* outcome) {
  return SumOf(name, memory, count, rank->stream, [outcome](const Status& status) {
    outcome->status = status;
    outcome->done.store(true);
  });
}

template <typename Body>
void OnGpuEngines(int size, const Body& body) {
  const FakeSetting gpus("GPUS", 8, 2);
  CudaDriver driver;
  ASSERT_OK(LoadCudaDriver(FakeGpuLibrary(), &driver));
  OnWorlds(size, [&](World* world) {
    Rank rank(world, driver);
    body(&rank);
  });
}

// The framework writes its tensors late, on its own stream, and reads the results there: an engine
// that did not wait for it, or did not make it wait, would give other numbers.
TEST(ASlowStreamGivesTheSameNumbers) {
  const FakeSetting slow("DELAY_MS", 30);
  for (const int size : {1, 2, 4}) {
    OnGpuEngines(size, [size](Rank* rank) {
      constexpr int kTensors = 3;
      constexpr int64_t kCount = 1000;
      for (int step = 0; step < 2; ++step) {
        std::vector<std::unique_ptr<GpuMemory>> memory;
        std::vector<Outcome> outcomes(kTensors);
        for (int t = 0; t < kTensors; ++t) {
          memory.push_back(rank->Allocate(kCount * 4));
          const float value = static_cast<float>(10 * step + t + rank->engine->topology().rank);
          rank->CopyToGpu(memory.back()->data(), std::vector<float>(kCount, value));
          char* const at = memory.back()->data();
          rank->engine->Submit(SumInPlace("t" + std::to_string(t), at, kCount, rank,
                                          &outcomes[static_cast<size_t>(t)]));
        }
        for (int t = 0; t < kTensors; ++t) {
          outcomes[static_cast<size_t>(t)].Wait();
          EXPECT_OK(outcomes[static_cast<size_t>(t)].status);
          const float sum = static_cast<float>(size * (10 * step + t) + size * (size - 1) / 2);
          EXPECT_TRUE(rank->CopyBack(memory[static_cast<size_t>(t)]->data(), kCount) ==
                      std::vector<float>(kCount, sum));
        }
      }
    });
  }
}

// Fused, and alone where they lie. A rank that weighs nothing has no number to give.
TEST(AveragesByWeight) {
  OnGpuEngines(3, [](Rank* rank) {
    const int me = rank->engine->topology().rank;
    const std::vector<int64_t> counts = {1000, 17, 300000};
    std::vector<std::unique_ptr<GpuMemory>> memory;
    std::vector<Outcome> outcomes(counts.size());
    for (size_t t = 0; t < counts.size(); ++t) {
      memory.push_back(rank->Allocate(counts[t] * 4));
      const float value = me == 0 ? std::nanf("") : static_cast<float>(3 * me);
      const std::vector<float> values(static_cast<size_t>(counts[t]), value);
      char* const at = memory.back()->data();
      rank->CopyToGpu(at, values);
      Entry entry = SumInPlace("t" + std::to_string(t), at, counts[t], rank, &outcomes[t]);
      entry.request.Edit()->reduction.op = ReduceOp::kAverage;
      entry.request.Edit()->weight = me;  // 0, 1 and 2: (1 * 3 + 2 * 6) / 3
      rank->engine->Submit(std::move(entry));
      rank->Synchronize(rank->stream);  // so that `values` may go
    }
    for (size_t t = 0; t < counts.size(); ++t) {
      outcomes[t].Wait();
      EXPECT_OK(outcomes[t].status);
      for (float value : rank->CopyBack(memory[t]->data(), counts[t])) {
        EXPECT_TRUE(std::abs(value - 5.0f) < 1e-5f);
      }
    }
  });
}

// Completion is in the order of streams: nobody waits for the GPU on the host.
TEST(AnEntryIsDoneBeforeTheGpuHasBegun) {
  OnGpuEngines(1, [](Rank* rank) {
    const auto memory = rank->Allocate(4);
    std::atomic<bool> release{false};
    rank->CopyToGpu(memory->data(), {1.0f});
    HoldUntil(&release, rank->stream, FakeGpuLibrary());
    Outcome outcome;
    rank->engine->Submit(SumInPlace("t", memory->data(), 1, rank, &outcome));
    outcome.Wait();  // would not end if it waited for the stream
    EXPECT_OK(outcome.status);
    release.store(true);
    EXPECT_EQ(rank->CopyBack(memory->data(), 1), std::vector<float>{1.0f});
  });
}

Entry OfBackwardPass(Entry entry, int32_t buckets) {
  entry.EditExtras()->backward_pass = "pass";
  entry.EditExtras()->buckets = buckets;
  return entry;
}

// While the first reduction of a backward pass waits for the other rank's tensor, the framework's
// stream computes what the next one takes. Both results are ready for what comes onto the stream
// after the second one's `done`.
TEST(ABackwardPassGoesOnWhileItsFirstReductionTravels) {
  std::atomic<bool> late_has_come{false};
  OnGpuEngines(2, [&late_has_come](Rank* rank) {
    const auto first = rank->Allocate(4);
    const auto second = rank->Allocate(4);
    const bool is_late = rank->engine->topology().rank == 1;
    std::atomic<bool> release{!is_late};
    HoldUntil(&release, rank->stream, FakeGpuLibrary());
    rank->CopyToGpu(first->data(), {1.0f});
    Outcome a, b;
    rank->engine->Submit(
        OfBackwardPass(SumInPlace("a", first->data(), 1, rank, &a), /*buckets=*/2));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has been agreed on
    if (!is_late) {
      rank->CopyToGpu(second->data(), {2.0f});
      rank->Synchronize(rank->stream);
      EXPECT_FALSE(late_has_come.load());
    }
    EXPECT_FALSE(a.done.load());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (is_late) {
      late_has_come.store(true);
      release.store(true);
      rank->CopyToGpu(second->data(), {2.0f});
    }
    rank->engine->Submit(OfBackwardPass(SumInPlace("b", second->data(), 1, rank, &b), 2));
    a.Wait();
    b.Wait();
    EXPECT_OK(a.status);
    EXPECT_OK(b.status);
    EXPECT_EQ(rank->CopyBack(first->data(), 1)[0], 2.0f);
    EXPECT_EQ(rank->CopyBack(second->data(), 1)[0], 4.0f);
  });
}

// A step that ends early submits less than was announced: nothing waits for it.
TEST(APartOfABackwardPassIsDoneOnceTheGpuIsAtRest) {
  OnGpuEngines(2, [](Rank* rank) {
    const auto memory = rank->Allocate(4);
    for (int step = 0; step < 20; ++step) {
      rank->CopyToGpu(memory->data(), {1.0f});
      Outcome outcome;
      rank->engine->Submit(OfBackwardPass(SumInPlace("a", memory->data(), 1, rank, &outcome), 5));
      outcome.Wait();
      EXPECT_OK(outcome.status);
      EXPECT_EQ(rank->CopyBack(memory->data(), 1)[0], 2.0f);
    }
  });
}

// What waits for the rest of its backward pass fails with the job.
TEST(APartOfABackwardPassFailsWithTheJob) {
  const FakeSetting failing("NCCL_FAIL_AFTER", 1);
  OnGpuEngines(2, [](Rank* rank) {
    const auto memory = rank->Allocate(4);
    Outcome outcome;
    rank->engine->Submit(
        OfBackwardPass(SumInPlace("a", memory->data(), 1, rank, &outcome), /*buckets=*/3));
    outcome.Wait();
    EXPECT_FALSE(outcome.status.ok());
    while (rank->engine->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    rank->Synchronize(rank->stream);  // it is not held
  });
}

TEST(RanksThatDisagreeOnTheDeviceHearOfIt) {
  OnGpuEngines(2, [](Rank* rank) {
    const auto memory = rank->Allocate(4);
    float on_host = 1.0f;
    Outcome outcome;
    Entry entry = SumInPlace("t", memory->data(), 1, rank, &outcome);
    if (rank->engine->topology().rank == 1) {
      entry.request.Edit()->device = DeviceKind::kHost;
      entry.inputs = {&on_host};
      entry.outputs = {&on_host};
    }
    rank->engine->Submit(std::move(entry));
    outcome.Wait();
    EXPECT_ERROR(outcome.status, StatusCode::kInvalidArgument, "rank 0: GPU; rank 1: CPU");
    EXPECT_OK(rank->engine->health());
  });
}

// What fails after an entry was done is heard by everything that follows, and frees the streams.
TEST(AnErrorOnTheGpuEndsTheJobOnEveryRank) {
  const FakeSetting failing("NCCL_FAIL_AFTER", 2);
  const auto body = [](Rank* rank) {
    const auto memory = rank->Allocate(4);
    rank->CopyToGpu(memory->data(), {1.0f});
    Status status;
    for (int i = 0; status.ok(); ++i) {
      Outcome outcome;
      rank->engine->Submit(SumInPlace("t" + std::to_string(i), memory->data(), 1, rank, &outcome));
      outcome.Wait();
      status = outcome.status;
    }
    while (rank->engine->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    rank->Synchronize(rank->stream);  // it is not held
  };
  for (const int size : {1, 2, 4}) OnGpuEngines(size, body);
}

// Whoever sees its stream move on after an error can ask whether the numbers there are right, be it
// that the GPU is not at rest for long: another stream of the framework's is held.
TEST(AnErrorIsKnownBeforeAStreamMovesOn) {
  const FakeSetting failing("NCCL_FAIL_AFTER", 1);
  std::atomic<bool> moved_on{false};
  OnGpuEngines(2, [&](Rank* rank) {
    const bool fails = rank->engine->topology().rank == 0;
    const auto memory = rank->Allocate(8);
    std::atomic<bool> begin{false}, release{false};
    HoldUntil(fails ? &begin : &release, rank->stream, FakeGpuLibrary());
    HoldUntil(&release, rank->other, FakeGpuLibrary());
    Outcome first, second;
    rank->engine->Submit(SumInPlace("first", memory->data(), 1, rank, &first));
    first.Wait();
    Entry entry = SumInPlace("second", memory->data() + 4, 1, rank, &second);
    entry.EditExtras()->stream = rank->other;
    rank->engine->Submit(std::move(entry));
    second.Wait();
    begin.store(true);
    if (fails) {
      rank->Synchronize(rank->stream);
      EXPECT_ERROR(rank->engine->health(), StatusCode::kInternal, "ibv_modify_qp");
      moved_on.store(true);
    }
    while (!moved_on.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    release.store(true);
    // The streams follow ours, so that nothing touches the memory any more.
    rank->Synchronize(rank->stream);
    rank->Synchronize(rank->other);
  });
}

// Engines of a job that is lost, for `why`, as soon as `when` says so.
template <typename Body>
void OnEnginesThatLose(int size, const std::function<bool()>& when, const std::string& why,
                       const Body& body) {
  const FakeSetting gpus("GPUS", 8, 2);
  CudaDriver driver;
  ASSERT_OK(LoadCudaDriver(FakeGpuLibrary(), &driver));
  InprocGroup group(size);
  RunThreads(size + 1, [&](int r) {
    if (r == size) {
      while (!when()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      group.Abort(Status::Aborted(why));
      return;
    }
    const std::unique_ptr<World> world = group.OpenWorld(r);
    Rank rank(world.get(), driver);
    body(r, &rank);
  });
}

// The last rank is lost while its part of a collective is missing: the others' streams, which wait
// for that collective, go on, and every later entry fails. `host_waits`: the engines wait for the
// GPU by then, as Adasum does for its input, and read no message.
void LoseAPeer(int size, bool host_waits) {
  std::atomic<int> submitted{0};
  std::atomic<int> gone_on{0};
  const auto all_have = [&] { return submitted.load() == size - 1; };
  OnEnginesThatLose(size, all_have, "the last rank is lost", [&](int r, Rank* rank) {
    const bool survives = r < size - 1;
    // The last rank's stream does not get to where its tensor is ready.
    std::atomic<bool> release{false};
    const auto memory = rank->Allocate(4);
    if (!survives) HoldUntil(&release, rank->stream, FakeGpuLibrary());
    Outcome outcome;
    rank->engine->Submit(SumInPlace("t", memory->data(), 1, rank, &outcome));
    outcome.Wait();
    Outcome adasum;
    if (host_waits) {
      Entry entry = SumInPlace("a", memory->data(), 1, rank, &adasum);
      entry.request.Edit()->kind = Collective::kAdasum;
      rank->engine->Submit(std::move(entry));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the engine to get there
    }
    if (survives) {
      submitted.fetch_add(1);
      if (host_waits) {
        adasum.Wait();
        EXPECT_ERROR(adasum.status, StatusCode::kAborted, "the last rank is lost");
      }
      rank->Synchronize(rank->stream);
      EXPECT_ERROR(rank->engine->health(), StatusCode::kAborted, "the last rank is lost");
      gone_on.fetch_add(1);
    } else {
      while (gone_on.load() < size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      release.store(true);
      if (host_waits) adasum.Wait();
      rank->Synchronize(rank->stream);
    }
  });
}

// NCCL says that a peer has ended; who watches the peers says which, be it later, and every rank's
// programs read that.
TEST(WhatNcclHearsOfALostPeerGetsItsName) {
  const FakeSetting closing("NCCL_CLOSED_AFTER", 1);
  std::atomic<int> submitted{0};
  const auto later = [&] {
    if (submitted.load() < 2) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return true;
  };
  OnEnginesThatLose(2, later, "rank 1 has died", [&](int, Rank* rank) {
    const auto memory = rank->Allocate(4);
    Outcome outcome;
    rank->engine->Submit(SumInPlace("t", memory->data(), 1, rank, &outcome));
    submitted.fetch_add(1);
    outcome.Wait();
    while (rank->engine->health().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_ERROR(rank->engine->health(), StatusCode::kAborted, "rank 1 has died");
    rank->Synchronize(rank->stream);
  });
}

TEST(ALostPeerDoesNotHoldTheStreams) {
  for (const int size : {2, 4}) LoseAPeer(size, /*host_waits=*/false);
}
TEST(ALostPeerDoesNotHoldAnEngineThatWaitsForTheGpu) {
  for (const int size : {2, 4}) LoseAPeer(size, /*host_waits=*/true);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
