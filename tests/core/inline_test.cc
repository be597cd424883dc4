// The thread that submits the last tensor of a small locked step runs it in place of the engine's.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/backends/shm/shm_control_plane.h"
#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using std::chrono::seconds;

// Long enough for the engine's thread to fall asleep, mostly.
void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(300)); }

// A step of `tensors` sums of `n` elements; which thread each was done on. The first wakes the
// engine's thread, which then waits for the last.
std::vector<std::thread::id> Step(Rank* rank, int tensors, size_t n) {
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<std::thread::id> threads(static_cast<size_t>(tensors));
  for (int t = 0; t < tensors; ++t) {
    auto call = std::make_unique<Call>();
    call->in.assign(n, static_cast<float>(t + rank->rank()));
    call->out.assign(n, -1.0f);
    Entry entry = EntryFor(call.get(), Collective::kAllReduce, "t" + std::to_string(t),
                           {static_cast<int64_t>(n)});
    entry.done = [c = call.get(), id = &threads[static_cast<size_t>(t)]](const Status& status) {
      *id = std::this_thread::get_id();
      c->promise.set_value(status);
    };
    if (t > 0 && t == tensors - 1) Pause();
    rank->engine()->Submit(std::move(entry));
    calls.push_back(std::move(call));
  }
  for (int t = 0; t < tensors; ++t) {
    EXPECT_OK(calls[static_cast<size_t>(t)]->Wait());
    const float sum = SumOfRanks(rank->size()) + static_cast<float>(rank->size() * t);
    EXPECT_TRUE(AllEqual(calls[static_cast<size_t>(t)]->out, sum));
  }
  return threads;
}

// Whether a whole step was ever done on the thread that submitted it, in so many steps. The
// engine's thread may be up just then, so no single step tells.
bool EverDoneHere(Rank* rank, int steps, int tensors, size_t n) {
  const std::vector<std::thread::id> here(static_cast<size_t>(tensors), std::this_thread::get_id());
  bool found = false;
  for (int step = 0; step < steps; ++step) {
    found = Step(rank, tensors, n) == here || found;
    Pause();
  }
  return found;
}

TEST(ALoneRankRunsASmallStepWhereItIsSubmitted) {
  RunRanks(1, [](Rank* rank) {
    EXPECT_TRUE(EverDoneHere(rank, 500, 1, 4));
    EXPECT_TRUE(EverDoneHere(rank, 300, 7, 100));
  });
}

TEST(ALargeStepIsLeftToTheEngine) {
  RunRanks(2, [](Rank* rank) { EXPECT_FALSE(EverDoneHere(rank, 20, 1, (1 << 18) + 1)); });
}

// Whoever is later in a step finds the other's vote.
TEST(OneOfTwoRanksRunsASmallStepWhereItIsSubmitted) {
  std::atomic<int> found{0};
  RunRanks(2, [&found](Rank* rank) { found += EverDoneHere(rank, 1000, 3, 10) ? 1 : 0; });
  EXPECT_TRUE(found > 0);
}

// `done` submits the next one: on whichever thread it runs, nothing waits for itself.
TEST(WhatIsDoneSubmitsTheNext) {
  constexpr int kSteps = 2000;
  for (const int size : {1, 2, 3}) {
    RunRanks(size, [](Rank* rank) {
      std::vector<float> value(8, 1.0f);
      std::promise<void> over;
      int left = kSteps;
      std::function<void()> submit = [&] {
        Entry entry;
        entry.request.Edit()->key.name = "again";
        entry.request.Edit()->tensors.push_back({DType::kFloat32, {8}});
        entry.request.Edit()->reduction.op = ReduceOp::kMax;
        entry.inputs.push_back(value.data());
        entry.outputs.push_back(value.data());
        entry.done = [&](const Status& status) {
          EXPECT_OK(status);
          if (--left == 0) return over.set_value();
          submit();
        };
        rank->engine()->Submit(std::move(entry));
      };
      submit();
      EXPECT_TRUE(over.get_future().wait_for(seconds(60)) == std::future_status::ready);
    });
  }
}

// Several threads complete steps, and a rank leaves in the middle: all end, each once.
TEST(LeavingWhileOthersRunInline) {
  for (int round = 0; round < 20; ++round) {
    RunRanks(3, [round](Rank* rank) {
      for (int step = 0; step < 40 + round; ++step) (void)Step(rank, 2, 10);
      if (rank->rank() == round % 3) return rank->engine()->Leave("enough");
      Call call;
      call.in.assign(10, 1.0f);
      call.out.assign(10, 0.0f);
      rank->engine()->Submit(EntryFor(&call, Collective::kAllReduce, "t0", {10}));
      EXPECT_ERROR(call.Wait(), StatusCode::kAborted, "");
    });
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
