// A rank fails, or answers nothing, in the middle of a collective, or is gone without a goodbye:
// every other rank hears it, though its own communicator says nothing (inproc's abort is each
// rank's alone).
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/engines.h"
#include "tests/core/testing.h"
#include "tests/core/wrapped_communicator.h"

namespace tfhvd {
namespace {

// Runs `body` on threads that play the ranks; `reduce` is what rank `odd` does instead of an
// allreduce of `members`.
void RunWithOdd(int size, int odd, const Config& config, const WrapCommunicator& around,
                const std::function<void(Rank*)>& body) {
  InprocGroup group(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(&group, r, config, nullptr, r == odd ? around : nullptr);
      body(&rank);
    });
  }
  for (std::thread& t : threads) t.join();
}

WrapCommunicator Instead(const WrappedCommunicator::Reduce& reduce) {
  return [reduce](const std::vector<int>&, std::unique_ptr<Communicator> inner) {
    return std::make_unique<WrappedCommunicator>(std::move(inner), reduce);
  };
}

Config WithStallCheck() {
  Config config;
  config.stall_check = false;
  return config;
}

// A collective of `name`, whose result this rank has no memory for where it is `poor`.
Status WithoutMemory(Rank* rank, Collective kind, const std::string& name, bool poor) {
  Call call;
  call.in.assign(8, 1.0f);
  Entry entry = EntryFor(&call, kind, name, {4, 2});
  if (poor) {
    entry.allocate = [](int, const Shape&, void**) {
      return Status::Unavailable("no memory for the rows");
    };
  }
  rank->engine()->Submit(std::move(entry));
  return call.Wait();
}

// The collective fails on all ranks, with the same words, and the job continues.
TEST(ALackOfMemoryOnOneRankFailsThatCollectiveOnAll) {
  for (int size : {2, 4}) {
    RunWithOdd(size, -1, WithStallCheck(), nullptr, [size](Rank* rank) {
      for (int step = 0; step < 3; ++step) {
        for (int poor = 0; poor < size; ++poor) {
          for (const Collective kind :
               {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
            const std::string who = "rank " + std::to_string(poor) + " cannot get the ";
            EXPECT_ERROR(WithoutMemory(rank, kind, "rows", rank->rank() == poor),
                         StatusCode::kUnavailable, "'rows' has failed on every rank: " + who);
            EXPECT_OK(WithoutMemory(rank, kind, "rows", false));
            EXPECT_OK(AllReduce(rank, "after", 4, 1.0f)->Wait());
          }
        }
      }
      rank->engine()->Leave("");
      EXPECT_TRUE(rank->engine()->WaitUntilOver(30.0));
    });
  }
}

// A rank that has not even the memory to ask says so in what it asks.
TEST(ALackOfMemoryThatIsAnnouncedFailsThatCollectiveOnAll) {
  RunWithOdd(4, -1, WithStallCheck(), nullptr, [](Rank* rank) {
    for (int step = 0; step < 10; ++step) {
      const int poor = step % 4;
      Call call;
      call.in.assign(4, 1.0f);
      call.out.assign(4, 0.0f);
      Entry entry = EntryFor(&call, Collective::kAllReduce, "sum", {4});
      const bool here = rank->rank() == poor && step % 2 == 0;
      if (here) entry.request.Edit()->fault = Status::Unavailable("rank has no memory");
      entry.request = rank->Kept(entry.request);
      rank->engine()->Submit(std::move(entry));
      const Status status = call.Wait();
      if (step % 2 == 0) EXPECT_ERROR(status, StatusCode::kUnavailable, "rank has no memory");
      if (step % 2 == 1) EXPECT_OK(status);
    }
    rank->engine()->Leave("");
    EXPECT_TRUE(rank->engine()->WaitUntilOver(30.0));
  });
}

TEST(ARankWhoseCollectiveFailsEndsItForAll) {
  for (int odd : {0, 1, 2}) {
    const auto fails = [](const std::function<Status()>&) {
      return Status::Aborted("the network of this rank broke");
    };
    RunWithOdd(3, odd, WithStallCheck(), Instead(fails), [](Rank* rank) {
      EXPECT_ERROR(AllReduce(rank, "x", 4, 1.0f)->Wait(), StatusCode::kAborted,
                   "the network of this rank broke");
      rank->engine()->Leave("");
      EXPECT_TRUE(rank->engine()->WaitUntilOver(30.0));
    });
  }
}

TEST(ARankThatRunsOutOfMemoryEndsTheJobAndNotTheProcess) {
  for (int odd : {0, 1}) {
    const auto throws = [](const std::function<Status()>&) -> Status { throw std::bad_alloc(); };
    RunWithOdd(2, odd, WithStallCheck(), Instead(throws), [odd](Rank* rank) {
      const Status status = AllReduce(rank, "x", 4, 1.0f)->Wait();
      EXPECT_ERROR(status, StatusCode::kUnavailable, "out of memory");
      EXPECT_ERROR(AllReduce(rank, "y", 4, 1.0f)->Wait(), StatusCode::kUnavailable,
                   "rank " + std::to_string(odd) + " (host here) has run out of memory");
      rank->engine()->Leave("");
      EXPECT_TRUE(rank->engine()->WaitUntilOver(30.0));
    });
  }
}

// As a process that was stopped: nothing of it runs, in the middle of a collective.
TEST(ARankThatIsStoppedInACollectiveIsNamedToAll) {
  Config config;
  config.stall_check_time = 0.5;
  config.stall_shutdown_time = 1.0;
  for (int odd : {0, 1, 2}) {
    std::atomic<int> ended{0};
    const auto stops = [&ended](const std::function<Status()>& inner) {
      while (ended.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return inner();
    };
    RunWithOdd(3, odd, config, Instead(stops), [&ended, odd](Rank* rank) {
      auto call = AllReduce(rank, "x", 4, 1.0f);
      const Status status = call->Wait();
      if (rank->rank() != odd) ++ended;
      EXPECT_EQ(status.code(), StatusCode::kAborted);
      EXPECT_CONTAINS(status.message(), "rank " + std::to_string(odd) + " (host here) has not");
      rank->engine()->Leave("");
      EXPECT_TRUE(rank->engine()->WaitUntilOver(30.0));
    });
  }
}

// Rank 0 is in the slow one, and coordinates the others meanwhile.
TEST(ASlowCollectiveOfOneSetStopsNoOther) {
  std::atomic<int> done{0};
  const auto around = [&done](const std::vector<int>& members,
                              std::unique_ptr<Communicator> inner) {
    const bool slow = members.size() == 2;
    return std::make_unique<WrappedCommunicator>(
        std::move(inner), [&done, slow](const std::function<Status()>& reduce) {
          while (slow && done.load() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return reduce();
        });
  };
  RunWithOdd(4, 1, WithStallCheck(), around, [&done](Rank* rank) {
    const int32_t first = Added(rank, {0, 1});
    const int32_t second = Added(rank, {2, 3});
    const bool in_first = rank->rank() < 2;
    for (int i = 0; i < (in_first ? 1 : 20); ++i) {
      Call call;
      call.in.assign(8, 1.0f);
      call.out.assign(8, 0.0f);
      Entry entry = EntryFor(&call, Collective::kAllReduce, "x" + std::to_string(i % 3), {8});
      entry.request.Edit()->key.process_set = in_first ? first : second;
      rank->engine()->Submit(std::move(entry));
      EXPECT_OK(call.Wait());
      EXPECT_TRUE(AllEqual(call.out, 2.0f));
    }
    if (!in_first) ++done;
  });
}

TEST(WhatAFailedCallMayStillTouchIsKept) {
  const auto settled = std::make_shared<std::atomic<bool>>(false);
  const auto around = [settled](const std::vector<int>&, std::unique_ptr<Communicator> inner) {
    auto wrapped =
        std::make_unique<WrappedCommunicator>(std::move(inner), [](const std::function<Status()>&) {
          return Status::Aborted("the network broke, with a message under way");
        });
    wrapped->is_settled = settled;
    return wrapped;
  };
  std::weak_ptr<int> memory;
  RunWithOdd(2, 1, WithStallCheck(), around, [&](Rank* rank) {
    Call call;
    call.in.assign(4, 1.0f);
    call.out.assign(4, 1.0f);
    Entry entry = EntryFor(&call, Collective::kAllReduce, "x", {4});
    if (rank->rank() == 1) {
      auto held = std::make_shared<int>(1);
      memory = held;
      entry.retain = [held](Retained) { return held; };
    }
    rank->engine()->Submit(std::move(entry));
    EXPECT_ERROR(call.Wait(), StatusCode::kAborted, "under way");
    if (rank->rank() != 1) return;
    EXPECT_FALSE(memory.expired());
    rank->engine()->Leave("");
    EXPECT_TRUE(rank->engine()->WaitUntilOver(30.0));
    EXPECT_FALSE(memory.expired());
    settled->store(true);
  });
  EXPECT_TRUE(memory.expired());
}

TEST(ADroppedEntryIsCompletedAllTheSame) {
  Status status;
  {
    Entry entry;
    entry.done = [&status](const Status& s) { status = s; };
    Entry moved = std::move(entry);
    EXPECT_OK(status);
  }
  EXPECT_ERROR(status, StatusCode::kUnavailable, "dropped");
}

// A process that a rank which is a thread pretends to be, to end as it likes.
int Process() {
  const int pid = fork();
  while (pid == 0) pause();
  return pid;
}

void End(int pid) {
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

TEST(WhoHasLeftDoesNotWaitForARankThatIsGoneWithoutAGoodbye) {
  for (int gone : {0, 1}) {
    const int process = Process();
    std::vector<int> pids(2, getpid());
    pids[static_cast<size_t>(gone)] = process;
    InprocGroup group(2);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        Rank rank(&group, r, WithStallCheck(), nullptr, nullptr, pids);
        EXPECT_OK(AllReduce(&rank, "x", 4, 1.0f)->Wait());
        if (r == gone) {
          End(process);
          while (!over.load()) std::this_thread::yield();
          return;
        }
        rank.engine()->Leave("");
        const bool ends = rank.engine()->WaitUntilOver(30.0);
        over.store(true);
        EXPECT_TRUE(ends);
        if (ends) {
          EXPECT_ERROR(rank.engine()->lost(), StatusCode::kAborted,
                       "rank " + std::to_string(gone) + " (process " + std::to_string(process));
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

TEST(WhoHasSaidGoodbyeMayBeGone) {
  const int process = Process();
  const std::vector<int> pids = {getpid(), process, getpid()};
  InprocGroup group(3);
  std::promise<void> left;
  std::promise<void> looked;
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(&group, r, WithStallCheck(), nullptr, nullptr, pids);
      EXPECT_OK(AllReduce(&rank, "x", 4, 1.0f)->Wait());
      if (r == 1) {
        rank.engine()->Leave("");
        End(process);
        left.set_value();
      } else if (r == 0) {
        left.get_future().wait();
        rank.engine()->Leave("");
        EXPECT_FALSE(rank.engine()->WaitUntilOver(0.6));  // it looks four times a second
        looked.set_value();
      } else {
        looked.get_future().wait();
        rank.engine()->Leave("");
      }
      EXPECT_TRUE(rank.engine()->WaitUntilOver(30.0));
      EXPECT_OK(rank.engine()->lost());
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
