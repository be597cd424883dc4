// The submission queue: nothing lost, nothing twice, in order, from any thread.
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/waker.h"
#include "cc/queue/submission_queue.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using std::chrono::hours;

void Nobody() {}

Entry Named(const std::string& name) {
  Entry entry;
  entry.request.Edit()->key.name = name;
  return entry;
}

TEST(EntriesComeOutInOrderWithNewIds) {
  SubmissionQueue queue(Nobody);
  EntryId last = 0;
  for (const char* name : {"a", "b", "c"}) {
    Entry entry = Named(name);
    EntryId id = 0;
    EXPECT_OK(queue.Push(&entry, &id));
    EXPECT_TRUE(id > last);
    last = id;
  }
  queue.Cancel(last);
  SubmissionQueue::Batch batch;
  queue.Drain(&batch);
  ASSERT_EQ(batch.entries.size(), size_t{3});
  EXPECT_EQ(batch.entries[0].request->key.name, "a");
  EXPECT_EQ(batch.entries[2].request->key.name, "c");
  EXPECT_EQ(batch.entries[2].id, last);
  EXPECT_EQ(batch.cancelled, std::vector<EntryId>{last});
  queue.Drain(&batch);
  EXPECT_TRUE(batch.empty());
}

TEST(AClosedQueueLeavesTheEntryAlone) {
  SubmissionQueue queue(Nobody);
  Entry first = Named("a");
  EntryId id = 0;
  EXPECT_OK(queue.Push(&first, &id));
  EXPECT_OK(queue.closed());
  queue.Close(Status::Aborted("over"));
  queue.Close(Status::Internal("later"));
  Entry second = Named("b");
  EXPECT_ERROR(queue.Push(&second, &id), StatusCode::kAborted, "over");
  EXPECT_EQ(second.request->key.name, "b");
  EXPECT_ERROR(queue.closed(), StatusCode::kAborted, "over");
  SubmissionQueue::Batch batch;
  queue.Drain(&batch);
  EXPECT_EQ(batch.entries.size(), size_t{1});  // what came before
}

TEST(TheFirstLeaveCounts) {
  SubmissionQueue queue(Nobody);
  queue.Leave("why");
  queue.Leave("again");
  SubmissionQueue::Batch batch;
  queue.Drain(&batch);
  EXPECT_TRUE(batch.leaving);
  EXPECT_EQ(batch.leave_reason, "why");
  queue.Leave("once more");
  queue.Drain(&batch);
  EXPECT_FALSE(batch.leaving);
}

TEST(WhatIsPutIntoTheEmptyQueueWakes) {
  int wakes = 0;
  SubmissionQueue queue([&wakes] { ++wakes; });
  SubmissionQueue::Batch batch;
  for (int what = 0; what < 3; ++what) {
    Entry entry = Named("x");
    EntryId id = 0;
    if (what == 0) EXPECT_OK(queue.Push(&entry, &id));
    if (what == 1) queue.Cancel(1);
    if (what == 2) queue.Leave("");
    EXPECT_EQ(wakes, what + 1);
    queue.Drain(&batch);
    EXPECT_FALSE(batch.empty());
  }
}

// Those that are expected wake when they are as many as are waited for; another one at once.
TEST(WhatIsNotExpectedWakesBeforeTheRest) {
  int wakes = 0;
  SubmissionQueue queue([&wakes] { ++wakes; });
  SubmissionQueue::Batch batch;
  const auto push = [&queue](const SharedRequest& request) {
    Entry entry;
    entry.request = request;
    EntryId id = 0;
    EXPECT_OK(queue.Push(&entry, &id));
  };
  const SharedRequest a = Named("a").request;
  const SharedRequest b = Named("b").request;
  queue.Expect({1, {a, b}});
  EXPECT_TRUE(queue.WakeAt(2, true));
  push(a);
  EXPECT_EQ(wakes, 0);
  push(b);
  EXPECT_EQ(wakes, 1);
  queue.Drain(&batch);
  EXPECT_EQ(batch.entries.size(), size_t{2});

  EXPECT_TRUE(queue.WakeAt(3, true));
  push(a);
  EXPECT_EQ(wakes, 1);
  push(Named("b").request);  // equal, but another
  EXPECT_EQ(wakes, 2);
  push(b);  // has been told of: they are drained together
  EXPECT_EQ(wakes, 2);
  queue.Expect({2, {b, a}});  // also for what is there
  queue.Drain(&batch);
  ASSERT_EQ(batch.entries.size(), size_t{3});
  EXPECT_EQ(batch.entries[0].schedule, 2);
  EXPECT_EQ(batch.entries[0].index, 1);
  EXPECT_EQ(batch.entries[1].schedule, 0);
  EXPECT_EQ(batch.entries[2].schedule, 2);
  EXPECT_EQ(batch.entries[2].index, 0);

  EXPECT_TRUE(queue.WakeAt(2));  // whatever they are
  push(Named("c").request);
  EXPECT_EQ(wakes, 2);
  push(Named("d").request);
  EXPECT_EQ(wakes, 3);

  EXPECT_FALSE(queue.WakeAt(2, true));
  EXPECT_FALSE(queue.WakeAt(3, true));  // not expected, and there already
  EXPECT_TRUE(queue.WakeAt(3));
  queue.Drain(&batch);
  queue.Expect({3, {}});
  EXPECT_TRUE(queue.WakeAt(2, true));
  push(a);
  EXPECT_EQ(wakes, 4);
}

TEST(ManyThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  Waker waker;
  SubmissionQueue queue([&waker] { waker.Wake(); });
  std::atomic<int> done{0};
  std::thread drain([&] {
    std::map<std::string, EntryId> last;  // ids of one thread's entries ascend
    std::set<EntryId> ids;
    while (ids.size() < kThreads * kEach) {
      waker.WaitFor(hours(1));  // a lost wake-up would last an hour
      SubmissionQueue::Batch batch;
      queue.Drain(&batch);
      for (const Entry& entry : batch.entries) {
        EXPECT_TRUE(ids.insert(entry.id).second);
        EXPECT_TRUE(entry.id > last[entry.request->key.name]);
        last[entry.request->key.name] = entry.id;
      }
    }
    EXPECT_EQ(last.size(), size_t{kThreads});
  });
  testing::RunThreads(kThreads, [&](int thread) {
    for (int i = 0; i < kEach; ++i) {
      Entry entry = Named(std::to_string(thread));
      EntryId id = 0;
      if (queue.Push(&entry, &id).ok()) ++done;
    }
  });
  drain.join();
  EXPECT_EQ(done.load(), kThreads * kEach);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
