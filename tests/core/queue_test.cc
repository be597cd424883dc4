// The submission queue: nothing lost, nothing twice, in order, from any thread.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
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

TEST(AnEntryThatIsWithdrawnBeforeItComesIsRefusedAndAfterwardsHasItsId) {
  SubmissionQueue queue(Nobody);
  Entry entry = Named("a");
  Withdrawal withdrawal;
  entry.withdrawal = &withdrawal;
  EntryId id = 0;
  EXPECT_OK(queue.Push(&entry, &id));
  EXPECT_EQ(withdrawal.Ask(), id);
  Entry unwanted = Named("b");
  Withdrawal before;
  EXPECT_EQ(before.Ask(), EntryId{0});
  unwanted.withdrawal = &before;
  EXPECT_ERROR(queue.Push(&unwanted, &id), StatusCode::kCancelled, "before it began");
  Entry next = Named("c");
  EXPECT_OK(queue.Push(&next, &id));
  EXPECT_TRUE(before.Ask() != id);
  SubmissionQueue::Batch batch;
  queue.Drain(&batch);
  ASSERT_EQ(batch.entries.size(), size_t{2});
  EXPECT_EQ(batch.entries[1].request->key.name, "c");
}

TEST(AnEntryThatIsWithdrawnWhileItComesIsRefusedOrComesBeforeItsCancellation) {
  for (int round = 0; round < 2000; ++round) {
    SubmissionQueue queue(Nobody);
    Withdrawal withdrawal;
    Status pushed;
    std::thread submits([&] {
      Entry entry = Named("a");
      entry.withdrawal = &withdrawal;
      EntryId id = 0;
      pushed = queue.Push(&entry, &id);
    });
    const EntryId id = withdrawal.Ask();
    if (id != 0) queue.Cancel(id);
    SubmissionQueue::Batch batch;
    queue.Drain(&batch);
    const bool came = !batch.entries.empty();
    EXPECT_TRUE(!came || batch.cancelled == std::vector<EntryId>{id});
    submits.join();
    EXPECT_TRUE(pushed.ok() == came);
  }
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

SharedRequest RequestOf(const std::string& name) { return Named(name).request; }

EntryId Push(SubmissionQueue* queue, const SharedRequest& request, bool anonymous = false) {
  Entry entry;
  entry.request = request;
  entry.anonymous = anonymous;
  EntryId id = 0;
  EXPECT_OK(queue->Push(&entry, &id));
  return id;
}

// A step of two buckets: the first two requests, and the rest.
std::shared_ptr<const LockedStep> StepOf(const std::vector<SharedRequest>& requests) {
  auto step = std::make_shared<LockedStep>();
  for (const SharedRequest& request : requests) step->collectives.push_back({request, {}});
  step->buckets = {{0, 2, 0}, {2, static_cast<int>(requests.size()) - 2, 0}};
  return step;
}

std::vector<EntryId> IdsOf(const std::vector<Agreed>& bucket) {
  std::vector<EntryId> ids;
  for (const Agreed& agreed : bucket) ids.push_back(agreed.entry.id);
  return ids;
}

// Who pushes an entry into a sleeping engine's queue wakes it, once.
TEST(OnlyTheFirstEntryThatIsWaitedForWakes) {
  int wakes = 0;
  SubmissionQueue queue([&wakes] { ++wakes; });
  SubmissionQueue::Batch batch;
  Push(&queue, RequestOf("a"));
  Push(&queue, RequestOf("b"));
  EXPECT_EQ(wakes, 1);
  EXPECT_FALSE(queue.Arm(false));  // they are there
  queue.Drain(&batch);
  Push(&queue, RequestOf("c"));  // the engine does not sleep
  EXPECT_EQ(wakes, 1);
  queue.Drain(&batch);
  EXPECT_TRUE(queue.Arm(false));
  Push(&queue, RequestOf("d"));
  EXPECT_EQ(wakes, 2);
}

class Locked {
 public:
  Locked()
      : queue([this] { ++wakes; }, [this] { ++completed; }),
        a(RequestOf("a")),
        b(RequestOf("b")),
        c(RequestOf("c")) {
    std::vector<Entry> none;
    queue.Lock(StepOf({a, b, c}), &none);
  }

  int wakes = 0;
  int completed = 0;
  SubmissionQueue queue;
  SubmissionQueue::Batch batch;
  std::vector<Agreed> bucket;
  const SharedRequest a, b, c;
};

TEST(ABucketIsHandedOutWholeInTheOrderOfTheStep) {
  Locked t;
  EXPECT_TRUE(t.queue.Arm(true));
  const EntryId third = Push(&t.queue, t.c);  // of the next bucket
  const EntryId second = Push(&t.queue, t.b);
  EXPECT_EQ(t.completed, 0);
  EXPECT_FALSE(t.queue.TakeBucket(&t.bucket));
  const EntryId first = Push(&t.queue, RequestOf("a"));  // another that says the same
  EXPECT_EQ(t.completed, 1);
  EXPECT_EQ(t.wakes, 0);
  EXPECT_FALSE(t.queue.Arm(true));
  EXPECT_EQ(t.queue.collected().waiting, size_t{3});
  EXPECT_TRUE(t.queue.TakeBucket(&t.bucket));
  EXPECT_EQ(IdsOf(t.bucket), (std::vector<EntryId>{first, second}));
  t.bucket.clear();
  EXPECT_TRUE(t.queue.TakeBucket(&t.bucket));
  EXPECT_EQ(IdsOf(t.bucket), std::vector<EntryId>{third});
  EXPECT_EQ(t.queue.collected().waiting, size_t{0});
  EXPECT_EQ(t.queue.collected().taken, 3);
  t.queue.Drain(&t.batch);
  EXPECT_TRUE(t.batch.empty());
}

// A position is guessed from the one before: whatever comes next, and by whichever request.
TEST(EachComesToItsPositionInWhateverOrder) {
  Locked t;
  std::vector<SharedRequest> requests = {t.a, t.b, t.c};
  std::vector<size_t> order = {0, 1, 2};
  for (int round = 0; round < 24; ++round) {
    const auto other = static_cast<size_t>(round % 3);
    if (round % 4 == 3) requests[other] = RequestOf(std::string(1, "abc"[other]));
    std::vector<EntryId> ids(3);
    for (const size_t i : order) ids[i] = Push(&t.queue, requests[i]);
    EXPECT_TRUE(t.queue.TakeBucket(&t.bucket));
    EXPECT_TRUE(t.queue.TakeBucket(&t.bucket));
    t.queue.BucketRuns();
    EXPECT_EQ(IdsOf(t.bucket), ids);
    t.bucket.clear();
    std::next_permutation(order.begin(), order.end());
  }
}

TEST(ACompleteBucketWakesNobodyWhoWaitsForVotes) {
  Locked t;
  EXPECT_TRUE(t.queue.Arm(false));
  Push(&t.queue, t.a);
  Push(&t.queue, t.b);
  EXPECT_EQ(t.wakes + t.completed, 0);
  Push(&t.queue, RequestOf("other"));
  EXPECT_EQ(t.wakes, 1);
}

TEST(WhatTheStepHasNotIsDrainedAndNothingOvertakesIt) {
  Locked t;
  EXPECT_TRUE(t.queue.Arm(true));
  Push(&t.queue, t.a);
  Push(&t.queue, RequestOf("other"));
  EXPECT_EQ(t.wakes, 1);
  Push(&t.queue, t.b);
  EXPECT_FALSE(t.queue.TakeBucket(&t.bucket));
  t.queue.Drain(&t.batch);
  ASSERT_EQ(t.batch.entries.size(), size_t{2});
  EXPECT_EQ(t.batch.entries[1].request->key.name, "b");
  std::vector<Entry> rest;
  t.queue.Unlock(&rest);
  ASSERT_EQ(rest.size(), size_t{1});
  EXPECT_EQ(rest[0].request->key.name, "a");
  Push(&t.queue, t.a);
  t.queue.Drain(&t.batch);
  EXPECT_EQ(t.batch.entries.size(), size_t{1});
}

TEST(ANameTwiceIsRefusedUntilItsBucketRuns) {
  Locked t;
  Push(&t.queue, t.a);
  Push(&t.queue, t.a);
  t.queue.Drain(&t.batch);
  EXPECT_EQ(t.batch.twice.size(), size_t{1});
  Push(&t.queue, t.b);
  EXPECT_TRUE(t.queue.TakeBucket(&t.bucket));  // voted on
  Push(&t.queue, t.b);
  t.queue.Drain(&t.batch);
  EXPECT_EQ(t.batch.twice.size(), size_t{1});
  EXPECT_TRUE(t.batch.entries.empty());
  t.queue.BucketRuns();
  Push(&t.queue, t.b);
  t.queue.Drain(&t.batch);
  EXPECT_TRUE(t.batch.empty());
}

TEST(AnonymousOnesOfANameComeInOrderRoundAfterRound) {
  Locked t;
  std::vector<EntryId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(Push(&t.queue, t.a, true));
  std::vector<EntryId> came;
  for (int round = 0; round < 3; ++round) {
    Push(&t.queue, t.b);
    Push(&t.queue, t.c);
    for (int bucket = 0; bucket < 2; ++bucket) {
      t.bucket.clear();
      ASSERT_TRUE(t.queue.TakeBucket(&t.bucket));
      t.queue.BucketRuns();
      if (bucket == 0) came.push_back(t.bucket[0].entry.id);
    }
  }
  EXPECT_EQ(came, ids);
}

TEST(WhatIsInFlightWhenAStepIsLockedGoesToItsPosition) {
  SubmissionQueue queue(Nobody);
  const SharedRequest a = RequestOf("a");
  const SharedRequest b = RequestOf("b");
  std::vector<Entry> pending;
  pending.emplace_back();
  pending.back().request = a;
  Push(&queue, b);
  Push(&queue, RequestOf("other"));
  queue.Lock(StepOf({a, b, RequestOf("c")}), &pending);
  EXPECT_TRUE(pending.empty());
  std::vector<Agreed> bucket;
  EXPECT_TRUE(queue.TakeBucket(&bucket));
  EXPECT_EQ(bucket.size(), size_t{2});
  EXPECT_EQ(queue.size(), size_t{1});  // the other one
}

TEST(PendingEntriesThatTheStepHasNotAreGivenBack) {
  SubmissionQueue queue(Nobody);
  const SharedRequest a = RequestOf("a");
  std::vector<Entry> pending(3);
  pending[0].request = a;
  pending[1].request = RequestOf("other");
  pending[2].request = RequestOf("b");
  queue.Lock(StepOf({a, RequestOf("b"), RequestOf("c")}), &pending);
  ASSERT_EQ(pending.size(), size_t{2});  // in order, though the second one is of the step
  EXPECT_EQ(pending[0].request->key.name, "other");
  EXPECT_EQ(pending[1].request->key.name, "b");
}

// An alltoall's splits are no part of its request. The step takes those that fit.
TEST(SplitsThatDoNotFitAreNotOfTheStep) {
  SubmissionQueue queue(Nobody);
  SharedRequest request;
  request.Edit()->key.name = "x";
  request.Edit()->kind = Collective::kAllToAll;
  request.Edit()->tensors.push_back({DType::kFloat32, {4}});
  auto step = std::make_shared<LockedStep>();
  step->collectives.push_back({request, {}});
  step->collectives[0].decision.first_dims = {{4, 4}};
  step->buckets = {{0, 1, 16}};
  std::vector<Entry> none;
  queue.Lock(step, &none);
  const auto taken = [&](std::vector<int64_t> splits) {
    Entry entry;
    entry.request = request;
    entry.anonymous = true;
    entry.EditExtras()->splits = std::move(splits);
    const int64_t before = queue.collected().taken;
    EntryId id = 0;
    EXPECT_OK(queue.Push(&entry, &id));
    SubmissionQueue::Batch batch;
    queue.Drain(&batch);
    return queue.collected().taken > before;
  };
  EXPECT_TRUE(taken({1, 3}));
  EXPECT_TRUE(taken({0, 4}));
  EXPECT_FALSE(taken({1, 2}));
  EXPECT_FALSE(taken({5, -1}));
  EXPECT_FALSE(taken({4}));
  EXPECT_FALSE(taken({2, 1, 1}));
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
      if (queue.Arm(false)) waker.WaitFor(hours(1));  // a lost wake-up would last an hour
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
