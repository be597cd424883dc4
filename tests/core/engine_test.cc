// Engines as threads of one process, over the inproc backend: every collective, any order of
// submission, errors that leave the job running, cancellation, and leaving.
#include "cc/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/engines.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

TEST(ReducesAtEverySizeOfJobAndTensor) {
  for (int size = 1; size <= 8; ++size) {
    RunRanks(size, [](Rank* rank) {
      for (size_t n : {size_t{0}, size_t{1}, size_t{7}, size_t{1031}, size_t{300000}}) {
        auto call = AllReduce(rank, "x" + std::to_string(n), n, static_cast<float>(rank->rank()));
        EXPECT_TRUE(call->Wait().ok());
        EXPECT_TRUE(AllEqual(call->out, SumOfRanks(rank->size())));
      }
    });
  }
}

TEST(AnyOrderOfSubmissionOverManySteps) {
  for (int size : {2, 3, 5, 8}) {
    for (int64_t capacity : {0, 10, 1024}) {
      Config config;
      config.cache_capacity = capacity;
      config.fusion_threshold = 4096;
      RunRanks(
          size,
          [](Rank* rank) {
            std::mt19937 random(static_cast<unsigned>(rank->rank()));
            for (int step = 0; step < 30; ++step) {
              std::vector<int> order(40);
              for (int i = 0; i < 40; ++i) order[i] = i;
              std::shuffle(order.begin(), order.end(), random);
              std::vector<std::unique_ptr<Call>> calls(40);
              for (int i : order) {
                calls[i] = AllReduce(rank, "grad" + std::to_string(i), static_cast<size_t>(i * 13),
                                     static_cast<float>(step + i + rank->rank()));
              }
              for (int i = 0; i < 40; ++i) {
                EXPECT_TRUE(calls[i]->Wait().ok());
                const float sum =
                    static_cast<float>((step + i) * rank->size()) + SumOfRanks(rank->size());
                EXPECT_TRUE(AllEqual(calls[i]->out, sum));
              }
            }
          },
          config);
    }
  }
}

TEST(GathersDifferentLengthsAlsoFused) {
  RunRanks(4, [](Rank* rank) {
    for (int step = 0; step < 5; ++step) {
      std::vector<std::unique_ptr<Call>> calls;
      for (int i = 0; i < 3; ++i) {
        auto call = std::make_unique<Call>();
        const int64_t rows = (rank->rank() + i + step) % 3;
        call->in.assign(static_cast<size_t>(rows * 2), static_cast<float>(10 * i + rank->rank()));
        rank->engine()->Submit(
            EntryFor(call.get(), Collective::kAllGather, "gather" + std::to_string(i), {rows, 2}));
        calls.push_back(std::move(call));
      }
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(calls[i]->Wait().ok());
        std::vector<float> expected;
        for (int r = 0; r < rank->size(); ++r) {
          expected.insert(expected.end(), static_cast<size_t>((r + i + step) % 3 * 2),
                          static_cast<float>(10 * i + r));
        }
        EXPECT_TRUE(calls[i]->out == expected);
      }
    }
  });
}

TEST(BroadcastsFromEveryRoot) {
  RunRanks(3, [](Rank* rank) {
    for (int root = 0; root < rank->size(); ++root) {
      std::vector<std::unique_ptr<Call>> calls;
      for (int i = 0; i < 4; ++i) {
        auto call = std::make_unique<Call>();
        call->in.assign(static_cast<size_t>(5 + i), static_cast<float>(100 * i + rank->rank()));
        call->out.assign(call->in.size(), -1.0f);
        Entry entry =
            EntryFor(call.get(), Collective::kBroadcast, "b" + std::to_string(i), {5 + i});
        entry.request.Edit()->root = root;
        rank->engine()->Submit(std::move(entry));
        calls.push_back(std::move(call));
      }
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(calls[i]->Wait().ok());
        EXPECT_TRUE(AllEqual(calls[i]->out, static_cast<float>(100 * i + root)));
      }
    }
  });
}

TEST(ScattersRowsAlsoFusedAndUneven) {
  for (int size : {1, 2, 3, 8}) {
    RunRanks(size, [](Rank* rank) {
      for (int step = 0; step < 5; ++step) {
        std::vector<std::unique_ptr<Call>> calls;
        for (int i = 0; i < 4; ++i) {
          auto call = std::make_unique<Call>();
          const int64_t rows = i * 5 + step;
          for (int64_t x = 0; x < rows * 2; ++x) call->in.push_back(static_cast<float>(x));
          rank->engine()->Submit(EntryFor(call.get(), Collective::kReduceScatter,
                                          "scatter" + std::to_string(i), {rows, 2}));
          calls.push_back(std::move(call));
        }
        for (int i = 0; i < 4; ++i) {
          EXPECT_TRUE(calls[i]->Wait().ok());
          int64_t begin = 0;
          for (int r = 0; r < rank->rank(); ++r) begin += RowsOfPart(i * 5 + step, rank->size(), r);
          const int64_t rows = RowsOfPart(i * 5 + step, rank->size(), rank->rank());
          EXPECT_EQ(calls[i]->out.size(), static_cast<size_t>(rows * 2));
          for (int64_t x = 0; x < rows * 2; ++x) {
            EXPECT_EQ(calls[i]->out[x], static_cast<float>(rank->size() * (begin * 2 + x)));
          }
        }
      }
    });
  }
}

// How many rows rank `from` sends to rank `to` in that step.
int64_t Sent(int from, int to, int step) { return (from + 2 * to + step) % 4; }

TEST(ExchangesRowsWithSplitsThatChange) {
  for (int size : {1, 2, 3, 8}) {
    RunRanks(size, [](Rank* rank) {
      for (int step = 0; step < 10; ++step) {
        Call call;
        std::vector<int64_t> splits;
        std::vector<int64_t> expected_splits;
        std::vector<int64_t> received;
        std::vector<float> expected;
        for (int r = 0; r < rank->size(); ++r) {
          splits.push_back(Sent(rank->rank(), r, step));
          call.in.insert(call.in.end(), static_cast<size_t>(3 * splits.back()),
                         static_cast<float>(100 * rank->rank() + r));
          expected_splits.push_back(Sent(r, rank->rank(), step));
          expected.insert(expected.end(), static_cast<size_t>(3 * expected_splits.back()),
                          static_cast<float>(100 * r + rank->rank()));
        }
        const int64_t rows = static_cast<int64_t>(call.in.size()) / 3;
        Entry entry = EntryFor(&call, Collective::kAllToAll, "exchange", {rows, 3});
        entry.EditExtras()->splits = splits;
        entry.EditExtras()->received_splits = [&](const std::vector<int64_t>& s) { received = s; };
        rank->engine()->Submit(std::move(entry));
        EXPECT_TRUE(call.Wait().ok());
        EXPECT_TRUE(call.out == expected);
        EXPECT_TRUE(received == expected_splits);
      }
    });
  }
}

// What one rank alone can see is wrong fails on all: none waits for a call that was refused.
TEST(SplitsThatDoNotFitFailOnEveryRank) {
  RunRanks(2, [](Rank* rank) {
    const std::vector<std::vector<int64_t>> wrong = {{2}, {1, 3}, {-1, 4}, {}};
    for (const std::vector<int64_t>& splits : wrong) {
      Call call;
      call.in.assign(3, 1.0f);
      Entry entry = EntryFor(&call, Collective::kAllToAll, "exchange", {3});
      entry.EditExtras()->splits = rank->rank() == 0 ? splits : std::vector<int64_t>{1, 2};
      rank->engine()->Submit(std::move(entry));
      const Status status = call.Wait();
      EXPECT_ERROR(status, StatusCode::kInvalidArgument, "alltoall 'exchange' on rank 0");
      EXPECT_ERROR(status, StatusCode::kInvalidArgument, "Received: ");
      Call good;
      good.in.assign(2, static_cast<float>(rank->rank()));
      rank->engine()->Submit(EntryFor(&good, Collective::kAllToAll, "exchange", {2}));
      EXPECT_TRUE(good.Wait().ok());
      EXPECT_TRUE(good.out == (std::vector<float>{0.0f, 1.0f}));
    }
  });
}

TEST(AGroupOfMixedTypesIsDoneAsOne) {
  RunRanks(2, [](Rank* rank) {
    std::vector<float> a(10, 1.0f);
    std::vector<int32_t> b(3, rank->rank() + 1);
    std::promise<Status> promise;
    Entry entry;
    entry.request.Edit()->key.name = "group";
    entry.request.Edit()->tensors = {{DType::kFloat32, {10}}, {DType::kInt32, {3}}};
    entry.inputs = {a.data(), b.data()};
    entry.outputs = {a.data(), b.data()};
    entry.done = [&](const Status& s) { promise.set_value(s); };
    rank->engine()->Submit(std::move(entry));
    EXPECT_TRUE(promise.get_future().get().ok());
    EXPECT_TRUE(AllEqual(a, 2.0f));
    EXPECT_EQ(b[2], 3);
  });
}

TEST(AMismatchFailsEverywhereAndTheJobGoesOn) {
  RunRanks(4, [](Rank* rank) {
    for (int step = 0; step < 20; ++step) {
      auto good = AllReduce(rank, "good", 3, 1.0f);
      auto bad = AllReduce(rank, "bad", rank->rank() == 2 ? 4 : 5, 1.0f);
      const Status status = bad->Wait();
      EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument);
      EXPECT_TRUE(status.message().find("rank 2: float32[4]") != std::string::npos);
      EXPECT_TRUE(status.message().find("ranks [0, 1, 3]: float32[5]") != std::string::npos);
      EXPECT_TRUE(good->Wait().ok());
      EXPECT_TRUE(AllEqual(good->out, 4.0f));
      auto after = AllReduce(rank, "bad", 6, 1.0f);  // the name is usable again
      EXPECT_TRUE(after->Wait().ok());
    }
    EXPECT_FALSE(rank->engine()->cut_short());
  });
}

TEST(ANameTwiceInFlightFails) {
  std::promise<void> refused;  // rank 1 comes only after rank 0 has had the second one refused
  RunRanks(2, [&refused](Rank* rank) {
    if (rank->rank() == 1) {
      refused.get_future().wait();
      EXPECT_TRUE(AllReduce(rank, "twice", 2, 1.0f)->Wait().ok());
      return;
    }
    auto first = AllReduce(rank, "twice", 2, 1.0f);
    auto second = AllReduce(rank, "twice", 2, 1.0f);
    const Status status = second->Wait();
    EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().find("'twice'") != std::string::npos);
    refused.set_value();
    EXPECT_TRUE(first->Wait().ok());
  });
}

TEST(UnnamedOnesTakeTurnsInOrder) {
  RunRanks(3, [](Rank* rank) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < 50; ++i) {
      calls.push_back(
          AllReduce(rank, "eager", static_cast<size_t>(1 + i % 4), static_cast<float>(i), true));
    }
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(calls[i]->Wait().ok());
      EXPECT_TRUE(AllEqual(calls[i]->out, static_cast<float>(3 * i)));
    }
  });
}

TEST(ACancelledEntryIsGivenBackAndTheNextOneMeetsItsPeers) {
  RunRanks(2, [](Rank* rank) {
    if (rank->rank() == 0) {
      for (int i = 0; i < 20; ++i) {
        auto stale = AllReduce(rank, "y", 2, 1000.0f);
        rank->engine()->Cancel(stale->id);
        const Status status = stale->Wait();
        EXPECT_TRUE(status.code() == StatusCode::kCancelled);
      }
    }
    auto sync = AllReduce(rank, "sync", 1, 1.0f);
    EXPECT_TRUE(sync->Wait().ok());
    auto fresh = AllReduce(rank, "y", 2, 1.0f);
    EXPECT_TRUE(fresh->Wait().ok());
    EXPECT_TRUE(AllEqual(fresh->out, 2.0f));
  });
}

// What TensorFlow does: the failure of one operation cancels the others of its step, from within
// `done`.
TEST(AFailedStepNeverMixesWithTheNext) {
  RunRanks(3, [](Rank* rank) {
    std::mt19937 random(static_cast<unsigned>(17 + rank->rank()));
    for (int step = 0; step < 200; ++step) {
      const float tag = static_cast<float>(step);
      auto other = std::make_shared<std::atomic<EntryId>>(0);
      Call bad;
      bad.in.assign(rank->rank() == step % 3 ? 2 : 3, 1.0f);
      bad.out = bad.in;
      Entry entry =
          EntryFor(&bad, Collective::kAllReduce, "bad", {static_cast<int64_t>(bad.in.size())});
      Engine* engine = rank->engine();
      entry.done = [&bad, other, engine](const Status& s) {
        if (other->load() != 0) engine->Cancel(other->load());
        bad.promise.set_value(s);
      };
      // A rank may or may not get as far as submitting the other tensor of the step.
      std::unique_ptr<Call> pending;
      if (random() % 3 != 0) {
        pending = AllReduce(rank, "other", 4, tag);
        other->store(pending->id);
      }
      engine->Submit(std::move(entry));
      EXPECT_TRUE(bad.Wait().code() == StatusCode::kInvalidArgument);
      if (pending != nullptr) {
        const Status status = pending->Wait();
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled);
        if (status.ok()) EXPECT_TRUE(AllEqual(pending->out, 3 * tag));
      }
      auto next = AllReduce(rank, "other", 4, tag + 0.5f);
      EXPECT_TRUE(next->Wait().ok());
      EXPECT_TRUE(AllEqual(next->out, 3 * (tag + 0.5f)));
    }
  });
}

// Another thread submits the rest of the step meanwhile, as TensorFlow's do.
TEST(AFailedStepNeverMixesWithTheNextWhereItsRestIsOnItsWay) {
  RunRanks(2, [](Rank* rank) {
    for (int step = 0; step < 500; ++step) {
      const float tag = static_cast<float>(step);
      Withdrawal withdrawal;
      Engine* engine = rank->engine();
      Call rest;
      rest.in.assign(4, tag);
      rest.out = rest.in;
      std::thread submits([&] {
        Entry entry = EntryFor(&rest, Collective::kAllReduce, "rest", {4});
        entry.withdrawal = &withdrawal;
        engine->Submit(std::move(entry));
      });
      Call bad;
      bad.in.assign(rank->rank() == 0 ? 2 : 3, 1.0f);
      bad.out = bad.in;
      Entry entry =
          EntryFor(&bad, Collective::kAllReduce, "bad", {static_cast<int64_t>(bad.in.size())});
      entry.done = [&](const Status& s) {
        const EntryId id = withdrawal.Ask();
        if (id != 0) engine->Cancel(id);
        bad.promise.set_value(s);
      };
      engine->Submit(std::move(entry));
      EXPECT_TRUE(bad.Wait().code() == StatusCode::kInvalidArgument);
      submits.join();
      // What was cancelled may not be over yet, and does not keep the next of its name from coming.
      auto next = AllReduce(rank, "rest", 4, tag + 0.5f);
      EXPECT_OK(next->Wait());
      EXPECT_TRUE(AllEqual(next->out, 2 * (tag + 0.5f)));
      const Status status = rest.Wait();
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kCancelled);
      if (status.ok()) EXPECT_TRUE(AllEqual(rest.out, 2 * tag));
    }
  });
}

TEST(ARankThatLeavesFailsWhatOthersWaitFor) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    RunRanks(3, [leaver](Rank* rank) {
      EXPECT_TRUE(AllReduce(rank, "warm", 3, 1.0f)->Wait().ok());
      if (rank->rank() == leaver) {
        rank->engine()->Leave("ValueError: no such file");
        EXPECT_TRUE(AllReduce(rank, "late", 3, 1.0f)->Wait().code() ==
                    StatusCode::kFailedPrecondition);
        EXPECT_TRUE(rank->engine()->WaitUntilOver(60.0));
        return;
      }
      for (const char* name : {"warm", "new"}) {
        const Status status = AllReduce(rank, name, 3, 1.0f)->Wait();
        EXPECT_TRUE(status.code() == StatusCode::kAborted);
        EXPECT_TRUE(rank->engine()->cut_short());  // though the job is not over
        EXPECT_TRUE(status.message().find("rank " + std::to_string(leaver)) != std::string::npos);
        EXPECT_TRUE(status.message().find("ValueError: no such file") != std::string::npos);
        EXPECT_TRUE(status.message().find(name) != std::string::npos);
      }
    });
  }
}

TEST(ABarrierHoldsEverybody) {
  std::atomic<int> arrived{0};
  RunRanks(4, [&arrived](Rank* rank) {
    for (int i = 1; i <= 10; ++i) {
      ++arrived;
      Call call;
      Entry entry;
      entry.request.Edit()->key.name = "barrier";
      entry.request.Edit()->kind = Collective::kBarrier;
      entry.done = [&call](const Status& s) { call.promise.set_value(s); };
      rank->engine()->Submit(std::move(entry));
      EXPECT_TRUE(call.Wait().ok());
      EXPECT_TRUE(arrived.load() >= 4 * i);
    }
  });
}

TEST(ManyThreadsSubmitAtOnce) {
  RunRanks(2, [](Rank* rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([rank, t] {
        for (int i = 0; i < 50; ++i) {
          auto call = AllReduce(rank, "thread" + std::to_string(t), 16, static_cast<float>(i));
          EXPECT_TRUE(call->Wait().ok());
          EXPECT_TRUE(AllEqual(call->out, static_cast<float>(2 * i)));
        }
      });
    }
    for (std::thread& t : threads) t.join();
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
