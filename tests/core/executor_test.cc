// The executor: what is copied where around one call, who completes when, and what a failure does.
#include "cc/execute/executor.h"

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/fuse/planner.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Values = std::vector<float>;

// Rank 1 of two; rank 0 brings the same values as this one, as bytes or floats. Writes down its
// calls.
class FakeCommunicator : public Communicator {
 public:
  const char* name() const override { return "fake"; }
  int rank() const override { return 1; }
  int size() const override { return 2; }

  Status AllReduce(const void* in, void* out, int64_t count, DType,
                   const Reduction& reduction) override {
    calls.push_back("allreduce " + std::to_string(count) + (in == out ? " in place" : ""));
    if (!failure.ok()) return failure;
    const auto* x = static_cast<const float*>(in);
    const void* both[] = {x, x};
    ReduceRanks(out, both, 2, count, DType::kFloat32, reduction);
    return Status::Ok();
  }
  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    calls.push_back("allgather " + std::to_string(bytes[0]) + "+" + std::to_string(bytes[1]));
    std::memset(out, 0, static_cast<size_t>(bytes[0]));  // rank 0 brings zeros
    if (bytes[1] > 0) {
      std::memcpy(static_cast<char*>(out) + bytes[0], in, static_cast<size_t>(bytes[1]));
    }
    return Status::Ok();
  }
  Status Broadcast(void* buffer, int64_t bytes, int root) override {
    calls.push_back("broadcast " + std::to_string(bytes) + " from " + std::to_string(root));
    if (root == 0) std::memset(buffer, 0, static_cast<size_t>(bytes));
    return Status::Ok();
  }
  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType,
                       const Reduction& reduction) override {
    calls.push_back("reducescatter " + std::to_string(counts[0]) + "+" + std::to_string(counts[1]));
    const auto* mine = static_cast<const float*>(in) + counts[0];
    const void* both[] = {mine, mine};
    ReduceRanks(out, both, 2, counts[1], DType::kFloat32, reduction);
    return Status::Ok();
  }
  // Rank 0 sends what this rank sends to it; of sizes, those that were set.
  Status AllToAll(const void* in, const std::vector<int64_t>& send, void* out,
                  const std::vector<int64_t>& receive) override {
    calls.push_back("alltoall " + std::to_string(send[0]) + "+" + std::to_string(send[1]));
    if (!exchanged) {
      exchanged = true;
      const int64_t sizes[] = {from_rank_0, static_cast<const int64_t*>(in)[1]};
      std::memcpy(out, sizes, sizeof sizes);
      return Status::Ok();
    }
    std::memset(out, 0, static_cast<size_t>(receive[0]));  // rank 0 brings zeros
    std::memcpy(static_cast<char*>(out) + receive[0], static_cast<const char*>(in) + send[0],
                static_cast<size_t>(send[1]));
    return Status::Ok();
  }
  Status Barrier() override {
    calls.push_back("barrier");
    return Status::Ok();
  }
  void Abort(const Status&) override {}
  bool settled() override { return is_settled; }

  Status failure;
  bool is_settled = true;
  int64_t from_rank_0 = 0;
  bool exchanged = false;
  std::vector<std::string> calls;
};

// Float tensors, their memory, and what becomes of the entry.
struct Work {
  explicit Work(std::initializer_list<std::vector<float>> tensors) : in(tensors) {
    for (const auto& t : in) out.emplace_back(t.size(), -1.0f);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  std::vector<std::vector<float>> in;
  std::vector<std::vector<float>> out;
  int done = 0;
  Status status;
};

Agreed Of(Collective kind, Work* work, int root = 0) {
  Agreed a;
  a.entry.request.Edit()->key.name = "x";
  a.entry.request.Edit()->kind = kind;
  a.entry.request.Edit()->root = root;
  for (size_t t = 0; t < work->in.size(); ++t) {
    a.entry.request.Edit()->tensors.push_back(
        {DType::kFloat32, {static_cast<int64_t>(work->in[t].size())}});
    a.entry.inputs.push_back(work->in[t].data());
    const bool late = kind != Collective::kAllReduce && kind != Collective::kBroadcast;
    a.entry.outputs.push_back(late ? nullptr : work->out[t].data());
  }
  a.entry.allocate = [work](int tensor, const Shape& shape, void** out) {
    auto& memory = work->out[static_cast<size_t>(tensor)];
    memory.assign(static_cast<size_t>(shape[0]), -1.0f);
    *out = memory.data();
    return Status::Ok();
  };
  a.entry.done = [work](const Status& s) {
    ++work->done;
    work->status = s;
  };
  return a;
}

struct Bench {
  Bench() : device(MakeHostDevice()), executor(device.get(), &sets, &communicator, nullptr) {}
  template <typename... A>
  Status Run(A... entries) {
    std::vector<Agreed> agreed;
    (agreed.push_back(std::move(entries)), ...);
    const std::vector<Plan> plans = MakePlans(agreed, {threshold});
    return executor.Run(plans, std::move(agreed));
  }

  int64_t threshold = 1 << 20;
  ProcessSetTable sets{2};
  FakeCommunicator communicator;
  std::unique_ptr<Device> device;
  Executor executor;
};

using Calls = std::vector<std::string>;

void ExpectDone(const Work& work) {
  EXPECT_EQ(work.done, 1);
  EXPECT_OK(work.status);
}

TEST(OneTensorIsReducedWhereItLies) {
  Bench bench;
  Work a{Values{1, 2, 3}};
  EXPECT_OK(bench.Run(Of(Collective::kAllReduce, &a)));
  ExpectDone(a);
  EXPECT_EQ(a.out[0], (Values{2, 4, 6}));
  EXPECT_EQ(bench.communicator.calls, Calls{"allreduce 3"});
}

TEST(FusedTensorsComeBackToTheirPlaces) {
  Bench bench;
  Work a{Values{1, 2}};
  Work none{Values{}};
  Work group{Values{3}, Values{4, 5}};
  EXPECT_OK(bench.Run(Of(Collective::kAllReduce, &a), Of(Collective::kAllReduce, &none),
                      Of(Collective::kAllReduce, &group)));
  for (const Work* w : {&a, &none, &group}) ExpectDone(*w);
  EXPECT_EQ(a.out[0], (Values{2, 4}));
  EXPECT_EQ(group.out[0], (Values{6}));
  EXPECT_EQ(group.out[1], (Values{8, 10}));
  EXPECT_EQ(bench.communicator.calls, Calls{"allreduce 5 in place"});
}

TEST(NothingIsCalledForNoElements) {
  Bench bench;
  Work a{Values{}};
  Work b{Values{}};
  EXPECT_OK(bench.Run(Of(Collective::kAllReduce, &a), Of(Collective::kBroadcast, &b)));
  ExpectDone(a);
  ExpectDone(b);
  EXPECT_EQ(bench.communicator.calls, Calls());
}

TEST(ABroadcastWritesTheRootsValues) {
  for (int root : {0, 1}) {
    Bench bench;
    Work alone{Values{7, 8}};
    EXPECT_OK(bench.Run(Of(Collective::kBroadcast, &alone, root)));
    ExpectDone(alone);
    EXPECT_EQ(alone.out[0], root == 1 ? (Values{7, 8}) : (Values{0, 0}));

    Work a{Values{1}};
    Work b{Values{2, 3}};
    EXPECT_OK(
        bench.Run(Of(Collective::kBroadcast, &a, root), Of(Collective::kBroadcast, &b, root)));
    EXPECT_EQ(a.out[0], root == 1 ? (Values{1}) : (Values{0}));
    EXPECT_EQ(b.out[0], root == 1 ? (Values{2, 3}) : (Values{0, 0}));
    EXPECT_EQ(bench.communicator.calls.back(), "broadcast 12 from " + std::to_string(root));
  }
}

TEST(AnAllGatherJoinsTheRanksParts) {
  Bench bench;
  Work a{Values{1, 2}};
  Work b{Values{3}};
  Agreed first = Of(Collective::kAllGather, &a);
  first.decision.first_dims = {{1, 2}};
  Agreed second = Of(Collective::kAllGather, &b);
  second.decision.first_dims = {{3, 1}};
  EXPECT_OK(bench.Run(std::move(first), std::move(second)));
  ExpectDone(a);
  ExpectDone(b);
  EXPECT_EQ(a.out[0], (Values{0, 1, 2}));
  EXPECT_EQ(b.out[0], (Values{0, 0, 0, 3}));
  EXPECT_EQ(bench.communicator.calls, (Calls{"allgather 8+8", "allgather 16+12"}));
}

TEST(AnEmptyAllGatherIsAllocatedAllTheSame) {
  Bench bench;
  Work a{Values{}};
  a.out[0] = {9};
  Agreed agreed = Of(Collective::kAllGather, &a);
  agreed.decision.first_dims = {{0, 0}};
  EXPECT_OK(bench.Run(std::move(agreed)));
  ExpectDone(a);
  EXPECT_EQ(a.out[0], Values());
}

TEST(AReduceScatterGivesEachRankItsRows) {
  Bench bench;
  Work a{Values{1, 2, 3}};
  EXPECT_OK(bench.Run(Of(Collective::kReduceScatter, &a)));
  ExpectDone(a);
  EXPECT_EQ(a.out[0], (Values{6}));
  EXPECT_EQ(bench.communicator.calls, (Calls{"allgather 8+8", "reducescatter 2+1"}));
}

TEST(FusedReduceScattersAreSortedByRank) {
  Bench bench;
  Work a{Values{1, 2, 3}};
  Work group{Values{4, 5}, Values{}, Values{6}};
  EXPECT_OK(bench.Run(Of(Collective::kReduceScatter, &a), Of(Collective::kReduceScatter, &group)));
  ExpectDone(a);
  ExpectDone(group);
  EXPECT_EQ(a.out[0], (Values{6}));
  EXPECT_EQ(group.out, (std::vector<Values>{{10}, {}, {}}));
  EXPECT_EQ(bench.communicator.calls, (Calls{"allgather 8+8", "reducescatter 4+2"}));
}

TEST(AnAllToAllAsksForSizesFirst) {
  Bench bench;
  bench.communicator.from_rank_0 = 3;
  Work a{Values{1, 2, 3}};
  std::vector<int64_t> received;
  Agreed agreed = Of(Collective::kAllToAll, &a);
  agreed.entry.EditExtras()->splits = {1, 2};
  agreed.entry.EditExtras()->received_splits = [&](const std::vector<int64_t>& s) { received = s; };
  EXPECT_OK(bench.Run(std::move(agreed)));
  ExpectDone(a);
  EXPECT_EQ(received, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(a.out[0], (Values{0, 0, 0, 2, 3}));
  EXPECT_EQ(bench.communicator.calls, (Calls{"alltoall 8+8", "allgather 8+8", "alltoall 4+8"}));
}

TEST(AFailureCompletesEverythingWithIt) {
  Bench bench;
  bench.threshold = 4;
  Work before{Values{}};
  Work a{Values{1, 2}};
  Work b{Values{3, 4}, Values{5, 6}};
  bench.communicator.failure = Status::Aborted("rank 0 is gone");
  Status told;
  bench.executor.SetOnBroken([&](const Status& why) {
    told = why;
    EXPECT_EQ(a.done, 0);  // whoever hears of it by an entry can ask
  });
  EXPECT_ERROR(bench.Run(Of(Collective::kAllReduce, &before), Of(Collective::kAllReduce, &a),
                         Of(Collective::kAllReduce, &b)),
               StatusCode::kAborted, "rank 0 is gone");
  EXPECT_EQ(told, bench.communicator.failure);
  ExpectDone(before);  // needed nobody
  for (const Work* w : {&a, &b}) {
    EXPECT_EQ(w->done, 1);
    EXPECT_ERROR(w->status, StatusCode::kAborted, "rank 0 is gone");
  }
  EXPECT_EQ(bench.communicator.calls.size(), size_t{1});  // a broken communicator is left alone
}

// Memory that nobody can keep is given back when no message can come in any more.
TEST(WhatAFailedCallMayStillTouchIsCompletedLast) {
  Bench bench;
  bench.communicator.failure = Status::Aborted("under way");
  bench.communicator.is_settled = false;
  Work touched{Values{1}};
  Work kept{Values{2}};
  Work untouched{Values{3}};
  bench.threshold = 4;  // each alone
  Agreed with_retain = Of(Collective::kAllReduce, &kept);
  with_retain.entry.retain = [](Retained) { return std::make_shared<int>(0); };
  EXPECT_ERROR(bench.Run(Of(Collective::kAllReduce, &touched), std::move(with_retain),
                         Of(Collective::kAllReduce, &untouched)),
               StatusCode::kAborted, "under way");
  EXPECT_EQ(touched.done, 0);
  EXPECT_EQ(kept.done, 1);
  EXPECT_EQ(untouched.done, 1);
  bench.executor.CompleteRest();
  EXPECT_EQ(touched.done, 1);
  EXPECT_ERROR(touched.status, StatusCode::kAborted, "under way");
}

TEST(ABarrierIsABarrier) {
  Bench bench;
  Work none{};
  EXPECT_OK(bench.Run(Of(Collective::kBarrier, &none)));
  ExpectDone(none);
  EXPECT_EQ(bench.communicator.calls, Calls{"barrier"});
}

// An accelerator that writes down in which order it is asked; its memory is the host's.
class FakeAccelerator : public Device, public Backend {
 public:
  explicit FakeAccelerator(Calls* calls) : calls_(*calls) {}

  DeviceKind kind() const override { return DeviceKind::kGpu; }
  Status Scratch(int64_t bytes, char** out) override { return host_->Scratch(bytes, out); }
  Status Copy(void* to, const void* from, int64_t bytes) override {
    calls_.push_back("copy");
    return host_->Copy(to, from, bytes);
  }
  Status Await(const std::shared_ptr<void>& mark) override {
    calls_.push_back("await " + *static_cast<std::string*>(mark.get()));
    return Status::Ok();
  }
  Status AwaitStream(void* stream) override {
    calls_.push_back("await stream " + *static_cast<std::string*>(stream));
    return Status::Ok();
  }
  Status Release(void* stream) override {
    calls_.push_back("release " + *static_cast<std::string*>(stream));
    return Status::Ok();
  }
  // At rest when it is asked for the third time.
  bool busy() override {
    const bool busy = ++asked_ < 3;
    calls_.push_back(busy ? "busy" : "at rest");
    return busy;
  }

  const char* name() const override { return "fake"; }
  Status Open(Communicator*, std::unique_ptr<Communicator>* out) override {
    calls_.push_back("open");
    auto communicator = std::make_unique<FakeCommunicator>();
    opened = communicator.get();
    opened->failure = failure;
    *out = std::move(communicator);
    return Status::Ok();
  }

  FakeCommunicator* opened = nullptr;  // Not owned.
  Status failure;

 private:
  Calls& calls_;
  const std::unique_ptr<Device> host_ = MakeHostDevice();
  int asked_ = 0;
};

Agreed OnGpu(Agreed a, const std::string& mark, std::string* stream) {
  a.entry.request.Edit()->device = DeviceKind::kGpu;
  a.entry.EditExtras()->ready = std::make_shared<std::string>(mark);
  a.entry.EditExtras()->stream = stream;
  return a;
}

TEST(TensorsOnAnAcceleratorWaitForTheirStreamsAndTheStreamsForThem) {
  Calls calls;
  FakeAccelerator accelerator(&calls);
  Bench bench;
  bench.executor.SetAccelerator(&accelerator, &accelerator);
  std::string stream = "s";
  Work host{Values{1}};
  Work a{Values{1, 2}};
  Work b{Values{3}};
  EXPECT_OK(bench.Run(OnGpu(Of(Collective::kAllReduce, &a), "a", &stream),
                      Of(Collective::kAllReduce, &host),
                      OnGpu(Of(Collective::kAllReduce, &b), "b", &stream)));
  for (const Work* w : {&host, &a, &b}) ExpectDone(*w);
  EXPECT_EQ(a.out[0], (Values{2, 4}));
  EXPECT_EQ(calls, (Calls{"open", "await a", "await b", "copy", "copy", "copy", "copy", "release s",
                          "release s"}));
  EXPECT_EQ(accelerator.opened->calls, Calls{"allreduce 3 in place"});
  EXPECT_EQ(bench.communicator.calls, Calls{"allreduce 1"});  // apart from those on the GPU
}

TEST(MemoryThatIsAllocatedLateIsWaitedFor) {
  Calls calls;
  FakeAccelerator accelerator(&calls);
  Bench bench;
  bench.executor.SetAccelerator(&accelerator, &accelerator);
  std::string stream = "s";
  Work a{Values{1, 2}};
  Agreed agreed = OnGpu(Of(Collective::kAllGather, &a), "a", &stream);
  agreed.decision.first_dims = {{1, 2}};
  EXPECT_OK(bench.Run(std::move(agreed)));
  EXPECT_EQ(calls, (Calls{"open", "await a", "await stream s", "release s"}));
}

// A gather of which the first attempts find no memory; writes down how many there were.
Agreed WithMemoryAfter(int attempts, int* tried, Agreed a) {
  a.decision.first_dims = {{1, 2}};
  a.entry.allocate = [attempts, tried, allocate = a.entry.allocate](int tensor, const Shape& shape,
                                                                    void** out) {
    if (++*tried <= attempts) return Status::Unavailable("There is no memory.");
    return allocate(tensor, shape, out);
  };
  return a;
}

// The framework's other operations give it back meanwhile. Messages are read all the while.
TEST(MemoryOfAnAcceleratorIsWaitedFor) {
  struct Asked : public WaitMonitor {
    Status OnWait(const Wait&) override {
      ++times;
      return Status::Ok();
    }
    int times = 0;
  };
  Asked monitor;
  Calls calls;
  FakeAccelerator accelerator(&calls);
  Bench bench;
  bench.executor.SetAccelerator(&accelerator, &accelerator);
  bench.executor.SetWaitMonitor(&monitor);
  std::string stream = "s";
  Work a{Values{1, 2}};
  int tried = 0;
  EXPECT_OK(
      bench.Run(WithMemoryAfter(12, &tried, OnGpu(Of(Collective::kAllGather, &a), "a", &stream))));
  ExpectDone(a);
  EXPECT_EQ(tried, 13);
  EXPECT_TRUE(monitor.times > 0);
}

TEST(MemoryOfTheHostIsNotWaitedFor) {
  Bench bench;
  Work a{Values{1, 2}};
  int tried = 0;
  EXPECT_OK(bench.Run(WithMemoryAfter(1, &tried, Of(Collective::kAllGather, &a))));
  EXPECT_ERROR(a.status, StatusCode::kUnavailable,
               "allgather 'x' has failed on every rank: rank 1 cannot get the 12 bytes");
  EXPECT_EQ(tried, 1);
}

// Of what travels together only that fails whose memory is missing.
TEST(WhatHasMemoryIsDoneWithoutTheRest) {
  Bench bench;
  Work a{Values{1, 2}};
  Work b{Values{3, 4}};
  int tried = 0;
  Agreed with = Of(Collective::kAllGather, &b);
  with.decision.first_dims = {{1, 2}};
  EXPECT_OK(
      bench.Run(WithMemoryAfter(1000, &tried, Of(Collective::kAllGather, &a)), std::move(with)));
  EXPECT_ERROR(a.status, StatusCode::kUnavailable, "rank 1 cannot get the 12 bytes of memory");
  ExpectDone(b);
  EXPECT_EQ(b.out[0], (Values{0, 3, 4}));
  EXPECT_EQ(bench.communicator.calls,
            (Calls{"allgather 8+8", "allgather 8+8", "allgather 8+8", "allgather 4+8"}));
}

// Tensors are given back to the framework when an entry is done: nothing may write there any more.
TEST(AnAcceleratorComesToRestBeforeAnybodyHearsOfAFailure) {
  Calls calls;
  FakeAccelerator accelerator(&calls);
  accelerator.failure = Status::Internal("out of order");
  Bench bench;
  bench.executor.SetAccelerator(&accelerator, &accelerator);
  std::string stream = "s";
  Work a{Values{1, 2}};
  Agreed agreed = OnGpu(Of(Collective::kAllReduce, &a), "a", &stream);
  agreed.entry.done = [&](const Status& status) { calls.push_back("done " + status.message()); };
  bench.executor.SetOnBroken([&](const Status&) { calls.push_back("broken"); });
  EXPECT_ERROR(bench.Run(std::move(agreed)), StatusCode::kInternal, "out of order");
  EXPECT_EQ(calls,
            (Calls{"open", "await a", "broken", "busy", "busy", "at rest", "done out of order"}));
}

TEST(AGpuTensorWithoutAnAcceleratorIsAnError) {
  Bench bench;
  std::string stream = "s";
  Work a{Values{1}};
  EXPECT_ERROR(bench.Run(OnGpu(Of(Collective::kAllReduce, &a), "a", &stream)),
               StatusCode::kInternal, "no device");
  EXPECT_EQ(a.done, 1);
}

TEST(AnUnknownProcessSetIsAnError) {
  Bench bench;
  Work a{Values{1}};
  Agreed agreed = Of(Collective::kAllReduce, &a);
  agreed.entry.request.Edit()->key.process_set = 7;
  EXPECT_ERROR(bench.Run(std::move(agreed)), StatusCode::kInternal, "process set 7");
  EXPECT_EQ(a.done, 1);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
