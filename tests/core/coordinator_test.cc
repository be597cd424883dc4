// The coordinator by hand: announcements in, agreements out.
#include "cc/negotiate/coordinator.h"

#include <string>
#include <utility>
#include <vector>

#include "cc/base/config.h"
#include "tests/core/by_hand.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

// All of two ranks announce `name` in full; the id that it has got.
CacheId AgreeOnce(Coordinator* c, const std::string& name, uint64_t seen = 0) {
  for (int r = 0; r < 2; ++r) EXPECT_OK(c->Take(r, InFull(name, 4, seen), 0));
  const Sent sent = c->Step(0);
  EXPECT_EQ(Items(To(sent, 0)), name);
  EXPECT_EQ(Items(To(sent, 1)), name);
  return To(sent, 0).items.empty() ? kNoId : To(sent, 0).items[0].id;
}

TEST(AgreesOnceAllHaveAnnounced) {
  Coordinator c(OptionsOf(3));
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(c.Step(0).size(), size_t{0});
    EXPECT_OK(c.Take(r, InFull("x"), 0));
    EXPECT_TRUE(c.waiting());
  }
  const Sent sent = c.Step(0);
  ASSERT_EQ(sent.size(), size_t{3});
  for (const auto& [to, a] : sent) {
    EXPECT_EQ(Items(*a), "x");
    EXPECT_EQ(a->sequence, uint64_t{1});
    EXPECT_FALSE(a->confirm);
  }
  EXPECT_FALSE(c.waiting());
  EXPECT_EQ(c.Step(0).size(), size_t{0});
}

// Both ranks have run a locked step of "x" and "y", in so much time each; the next lock.
Agreement LockAfter(Coordinator* c, int64_t step_ns, uint64_t* seen, const Bucket& ids) {
  for (int r = 0; r < 2; ++r) {
    Announcement a;
    a.seen = *seen;
    a.ended = step_ns > 0;
    a.ended_rounds = step_ns > 0 ? 100 : 0;
    a.ended_step_ns = step_ns;
    a.known = ids;
    EXPECT_OK(c->Take(r, a, 0));
  }
  const Agreement agreement = To(c->Step(0), 1);
  *seen = agreement.sequence;
  return agreement;
}

TEST(SettingsAreTriedOneBlockOfStepsAfterTheOther) {
  Coordinator::Options options = OptionsOf(2);
  options.may_lock = true;
  options.lock.autotune = true;
  options.lock.given.fusion.threshold = 7;
  Coordinator c(options);
  const Bucket ids = {AgreeOnce(&c, "x"), AgreeOnce(&c, "y", 1)};
  uint64_t seen = 2;
  Agreement a;
  for (int step = 0; step < 5 && a.lock.empty(); ++step) a = LockAfter(&c, 0, &seen, ids);
  ASSERT_EQ(a.lock.size(), size_t{1});
  EXPECT_EQ(a.lock_fusion.threshold, int64_t{7});
  const int64_t first = a.lock_term;
  EXPECT_TRUE(first > 0);
  std::string tried;
  while (a.lock_term > 0 && tried.size() < 1000) {
    tried += a.lock_fusion.threshold == 7 ? "g" : "d";
    const bool slow = a.lock_fusion.threshold == 7;
    a = LockAfter(&c, slow ? 2000000 : 1000000, &seen, ids);
    ASSERT_EQ(a.lock.size(), size_t{1});
  }
  EXPECT_EQ(tried.substr(0, 8), "gddggddg");  // what was given, the defaults
  EXPECT_TRUE(a.lock_fusion == FusionLimits() || a.lock_fusion.threshold == 64 << 10);
  EXPECT_TRUE(c.TakeTuning().back().what.done);
}

TEST(WithoutAutotuneALockLastsAndHasWhatWasGiven) {
  Coordinator::Options options = OptionsOf(2);
  options.may_lock = true;
  options.lock.given = {1, {7, 9}};
  Coordinator c(options);
  const Bucket ids = {AgreeOnce(&c, "x"), AgreeOnce(&c, "y", 1)};
  uint64_t seen = 2;
  Agreement a;
  for (int step = 0; step < 5 && a.lock.empty(); ++step) a = LockAfter(&c, 0, &seen, ids);
  ASSERT_EQ(a.lock.size(), size_t{2});
  EXPECT_EQ(a.lock_term, int64_t{0});
  EXPECT_TRUE(a.lock_fusion == options.lock.given.fusion);
}

TEST(EveryRankIsToldWhoCameLast) {
  Coordinator c(OptionsOf(3));
  for (const int r : {2, 0, 1}) EXPECT_OK(c.Take(r, InFull("x"), r));
  // Two of these announcements come at one time: which was the last is not known.
  EXPECT_OK(c.Take(0, InFull("y"), 7));
  for (const int r : {1, 2}) EXPECT_OK(c.Take(r, InFull("y"), 9));
  Sent sent = c.Step(10);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(To(sent, r).items[0].waited_for, 1);
    EXPECT_EQ(To(sent, r).items[1].waited_for, -1);
  }
  const CacheId x = To(sent, 0).items[0].id;
  for (const int r : {0, 1, 2}) EXPECT_OK(c.Take(r, ById(x), 20 + r));
  sent = c.Step(30);
  EXPECT_EQ(Items(To(sent, 1)), "#" + std::to_string(x));
  EXPECT_EQ(To(sent, 1).items[0].waited_for, 2);
}

TEST(TheOrderIsThatOfCompletion) {
  Coordinator c(OptionsOf(2));
  for (const char* name : {"a", "b", "c"}) EXPECT_OK(c.Take(0, InFull(name), 0));
  for (const char* name : {"c", "a", "b"}) EXPECT_OK(c.Take(1, InFull(name), 0));
  EXPECT_EQ(Items(To(c.Step(0), 1)), "c a b");
}

TEST(ProcessSetsHaveNamesOfTheirOwn) {
  Coordinator c(OptionsOf(2));
  Announcement add;
  add.requests.push_back(Ask("sets"));
  add.requests[0].kind = Collective::kAddProcessSet;
  add.requests[0].tensors.clear();
  add.requests[0].members = {0};
  for (int r = 0; r < 2; ++r) EXPECT_OK(c.Take(r, add, 0));
  EXPECT_EQ(To(c.Step(0), 1).items[0].decision.number, int64_t{1});
  Announcement a = InFull("x");
  a.requests.push_back(Ask("x"));
  a.requests[1].key.process_set = 1;
  EXPECT_OK(c.Take(0, a, 0));
  EXPECT_OK(c.Take(1, InFull("x"), 0));
  const Sent sent = c.Step(0);
  EXPECT_EQ(Items(To(sent, 0)), "x x");
  EXPECT_EQ(Items(To(sent, 1)), "x");
}

// What one rank's coordinator warns of while it agrees on steps of these names, in one agreement or
// in one each.
std::string WarningsOf(Coordinator* c, int steps, const std::vector<std::string>& names,
                       bool at_once) {
  std::string warnings;
  for (int i = 0; i < steps; ++i) {
    for (const std::string& name : names) {
      EXPECT_OK(c->Take(0, InFull(name, 4, 1000000), 0));
      if (!at_once || &name == &names.back()) EXPECT_EQ(c->Step(0).size(), size_t{1});
      warnings += c->TakeWarning();
    }
  }
  return warnings;
}

std::vector<std::string> Names(const std::string& prefix, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
  return names;
}

TEST(MoreThatRepeatsThanThereAreNumbersIsSaidOnce) {
  for (const bool at_once : {false, true}) {
    Coordinator c(OptionsOf(1, 4));
    EXPECT_EQ(WarningsOf(&c, 2, Names("t", 5), at_once), std::string());
    const std::string warning = WarningsOf(&c, 1, Names("t", 5), at_once);
    EXPECT_CONTAINS(warning, "TFHVD_CACHE_CAPACITY=4 is too small for this program");
    // At once, four of the five keep their numbers.
    EXPECT_CONTAINS(warning, at_once ? "Set TFHVD_CACHE_CAPACITY=8." : "CAPACITY=16.");
    EXPECT_EQ(WarningsOf(&c, 20, Names("t", 50), at_once), std::string());
  }
}

TEST(WhatHasNumbersOrNeedsNoneIsNotSaidToLackThem) {
  Coordinator enough(OptionsOf(1, 4));
  EXPECT_EQ(WarningsOf(&enough, 50, Names("t", 4), true), std::string());
  for (int i = 0; i < 50; ++i) {  // names that come once only
    EXPECT_EQ(WarningsOf(&enough, 1, Names("once" + std::to_string(i) + ".", 3), true),
              std::string());
  }
  Coordinator none(OptionsOf(1, 0));
  EXPECT_EQ(WarningsOf(&none, 50, Names("t", 9), true), std::string());
}

TEST(WhereNoMoreNumbersCanBeHadNothingIsAdvised) {
  CapacityMonitor monitor(kMostCacheCapacity);
  std::string warning;
  for (int i = 0; i < 3; ++i) warning = monitor.SawWithoutNumber(KeyOf("x"));
  EXPECT_CONTAINS(warning, "TFHVD_CACHE_CAPACITY=1000000 is too small");
  EXPECT_TRUE(warning.find("Set ") == std::string::npos);
}

TEST(AnnouncingTwiceIsABug) {
  Coordinator c(OptionsOf(2));
  EXPECT_OK(c.Take(1, InFull("x"), 0));
  EXPECT_ERROR(c.Take(1, InFull("x"), 0), StatusCode::kInternal, "rank 1 announced 'x' twice");
}

TEST(AnUnknownNumberIsABug) {
  Coordinator c(OptionsOf(2));
  EXPECT_ERROR(c.Take(1, ById(9), 0), StatusCode::kInternal, "unknown tensor number 9");
}

TEST(KnownByAllIsARepeat) {
  Coordinator c(OptionsOf(2));
  const CacheId x = AgreeOnce(&c, "x");
  const CacheId y = AgreeOnce(&c, "y");
  EXPECT_TRUE(x != kNoId && y != kNoId && x != y);
  for (int r = 0; r < 2; ++r) {
    EXPECT_OK(c.Take(r, ById(y), 0));
    EXPECT_OK(c.Take(r, ById(x), 0));
  }
  EXPECT_EQ(Items(To(c.Step(0), 1)), "#" + std::to_string(y) + " #" + std::to_string(x));
}

TEST(OneInFullAmongIdsIsComparedWithThem) {
  Coordinator c(OptionsOf(2));
  const CacheId x = AgreeOnce(&c, "x");
  EXPECT_OK(c.Take(0, ById(x), 0));
  EXPECT_OK(c.Take(1, InFull("x"), 0));
  Sent sent = c.Step(0);
  EXPECT_EQ(Items(To(sent, 0)), "x");
  EXPECT_EQ(To(sent, 0).items[0].id, x);  // keeps its number

  EXPECT_OK(c.Take(0, ById(x), 0));
  EXPECT_OK(c.Take(1, InFull("x", 7), 0));
  sent = c.Step(0);
  EXPECT_EQ(Items(To(sent, 1)), "x!");
  EXPECT_CONTAINS(To(sent, 1).items[0].decision.verdict.message(),
                  "rank 0: float32[4]; rank 1: float32[7]");
  EXPECT_EQ(To(sent, 1).items[0].id, kNoId);
}

TEST(AChangedShapeEverywhereIsAgreedAnew) {
  Coordinator c(OptionsOf(2));
  const CacheId x = AgreeOnce(&c, "x");
  for (int r = 0; r < 2; ++r) EXPECT_OK(c.Take(r, InFull("x", 9), 0));
  const Sent sent = c.Step(0);
  EXPECT_EQ(Items(To(sent, 0)), "x");
  EXPECT_EQ(To(sent, 0).items[0].id, x);
  // From now on the number means the new shape.
  EXPECT_OK(c.Take(0, ById(x), 0));
  EXPECT_OK(c.Take(1, InFull("x", 4), 0));
  EXPECT_CONTAINS(To(c.Step(0), 0).items[0].decision.verdict.message(), "rank 0: float32[9]");
}

TEST(AnAllGatherIsRememberedByRank) {
  Coordinator c(OptionsOf(2));
  const auto gather = [](int64_t rows) {
    Announcement a = InFull("g", rows);
    a.requests[0].kind = Collective::kAllGather;
    return a;
  };
  EXPECT_OK(c.Take(0, gather(3), 0));
  EXPECT_OK(c.Take(1, gather(5), 0));
  const Agreement first = To(c.Step(0), 0);
  EXPECT_EQ(first.items[0].decision.first_dims, (std::vector<std::vector<int64_t>>{{3, 5}}));
  // Rank 1 brings its five rows again, rank 0 has others.
  EXPECT_OK(c.Take(1, ById(first.items[0].id), 0));
  EXPECT_OK(c.Take(0, gather(8), 0));
  EXPECT_EQ(To(c.Step(0), 1).items[0].decision.first_dims,
            (std::vector<std::vector<int64_t>>{{8, 5}}));
}

TEST(WithoutRoomNothingHasANumber) {
  Coordinator c(OptionsOf(2, 0));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(AgreeOnce(&c, "x"), kNoId);
}

TEST(TheLeastRecentlyUsedIsEvicted) {
  Coordinator c(OptionsOf(2, 2));
  const CacheId a = AgreeOnce(&c, "a");
  const CacheId b = AgreeOnce(&c, "b");
  for (int r = 0; r < 2; ++r) EXPECT_OK(c.Take(r, ById(a), 0));
  EXPECT_EQ(To(c.Step(0), 0).items.size(), size_t{1});
  for (int r = 0; r < 2; ++r) EXPECT_OK(c.Take(r, InFull("c"), 0));
  const Agreement agreement = To(c.Step(0), 1);
  EXPECT_EQ(agreement.evicted, std::vector<CacheId>{b});
  EXPECT_TRUE(agreement.items[0].id != a && agreement.items[0].id != b);
}

TEST(WhatIsAnnouncedOrJustAgreedIsNotEvicted) {
  Coordinator c(OptionsOf(2, 1));
  const CacheId a = AgreeOnce(&c, "a");
  EXPECT_OK(c.Take(0, ById(a), 0));
  EXPECT_EQ(AgreeOnce(&c, "b"), kNoId);  // a has an open tally
  EXPECT_OK(c.Take(1, ById(a), 0));
  EXPECT_EQ(Items(To(c.Step(0), 0)), "#" + std::to_string(a));
  // Two new ones at once: the second cannot put out the first.
  for (int r = 0; r < 2; ++r) {
    EXPECT_OK(c.Take(r, InFull("c"), 0));
    EXPECT_OK(c.Take(r, InFull("d"), 0));
  }
  const Agreement agreement = To(c.Step(0), 0);
  EXPECT_EQ(agreement.evicted, std::vector<CacheId>{a});
  EXPECT_TRUE(agreement.items[0].id != kNoId);
  EXPECT_EQ(agreement.items[1].id, kNoId);
}

TEST(ALateAnnouncementByAnEvictedNumberCounts) {  // invariant 4
  Coordinator c(OptionsOf(2, 1));
  const CacheId a = AgreeOnce(&c, "a");
  AgreeOnce(&c, "b");  // puts out a, in sequence 2
  EXPECT_OK(c.Take(0, ById(a, 1), 0));
  EXPECT_OK(c.Take(1, ById(a, 1), 0));
  const Agreement agreement = To(c.Step(0), 0);
  EXPECT_EQ(Items(agreement), "a");  // said in full: others may have forgotten the number
  EXPECT_TRUE(agreement.items[0].id != a);
  EXPECT_ERROR(c.Take(0, ById(a, 3), 0), StatusCode::kInternal, "unknown tensor number");
}

TEST(AnEvictedNumberIsForgottenOnceAllHaveSeenIt) {
  Coordinator c(OptionsOf(2, 1));
  const CacheId a = AgreeOnce(&c, "a");
  AgreeOnce(&c, "b");
  EXPECT_OK(c.Take(0, Seen(2), 0));
  EXPECT_OK(c.Take(1, ById(a, 1), 0));  // not seen: still valid
  EXPECT_OK(c.Take(1, Withdraw("a", 1), 0));
  EXPECT_EQ(To(c.Step(0), 1).withdrawn.size(), size_t{1});
  EXPECT_OK(c.Take(1, Seen(2), 0));
  EXPECT_FALSE(c.Take(1, ById(a, 2), 0).ok());
}

TEST(AWithdrawalIsConfirmed) {
  Coordinator c(OptionsOf(2));
  EXPECT_OK(c.Take(0, InFull("x"), 0));
  EXPECT_OK(c.Take(0, Withdraw("x"), 0));
  const Sent sent = c.Step(0);
  ASSERT_EQ(sent.size(), size_t{1});
  EXPECT_EQ(sent[0].first, 0);
  EXPECT_TRUE(sent[0].second->withdrawn == std::vector<Key>{KeyOf("x")});
  EXPECT_FALSE(c.waiting());
  // The other rank's is not enough any more; announced again it is.
  EXPECT_OK(c.Take(1, InFull("x"), 0));
  EXPECT_EQ(c.Step(0).size(), size_t{0});
  EXPECT_OK(c.Take(0, InFull("x"), 0));
  EXPECT_EQ(Items(To(c.Step(0), 1)), "x");
}

TEST(AWithdrawalAfterTheDecisionIsIgnored) {
  Coordinator c(OptionsOf(2));
  AgreeOnce(&c, "x");
  EXPECT_OK(c.Take(0, Withdraw("x"), 0));
  EXPECT_OK(c.Take(0, Withdraw("never was"), 0));
  EXPECT_EQ(c.Step(0).size(), size_t{0});
}

TEST(ACompleteTallyThatIsNotDecidedYetCanBeWithdrawnFrom) {
  Coordinator::Options options = OptionsOf(2);
  options.cycle_time = 1.0;
  Coordinator c(options);
  for (int r = 0; r < 2; ++r) EXPECT_OK(c.Take(r, InFull("x"), 10.0));
  EXPECT_OK(c.Take(1, Withdraw("x"), 10.0));
  const Sent sent = c.Step(20.0);
  EXPECT_EQ(Items(To(sent, 0)), "");
  EXPECT_EQ(To(sent, 1).withdrawn.size(), size_t{1});
  EXPECT_TRUE(c.waiting());  // rank 0 waits
  EXPECT_OK(c.Take(1, InFull("x"), 21.0));
  EXPECT_EQ(Items(To(c.Step(30.0), 0)), "x");
}

TEST(AWithdrawalAfterALeaveFailsTheOthers) {
  Coordinator::Options options = OptionsOf(3);
  options.cycle_time = 1.0;
  Coordinator c(options);
  for (int r = 0; r < 3; ++r) EXPECT_OK(c.Take(r, InFull("x"), 10.0));
  EXPECT_OK(c.Take(2, Leave(), 10.0));
  EXPECT_OK(c.Take(1, Withdraw("x"), 10.0));
  const Sent sent = c.Step(20.0);
  EXPECT_EQ(Items(To(sent, 0)), "x!");
  EXPECT_EQ(Items(To(sent, 2)), "x!");
  EXPECT_EQ(To(sent, 1).withdrawn.size(), size_t{1});
  EXPECT_FALSE(c.waiting());
}

TEST(AfterAFailureNothingIsAgreedUntilAllHaveSeenIt) {  // invariant 3
  Coordinator c(OptionsOf(2));
  EXPECT_OK(c.Take(0, InFull("x", 1), 0));
  EXPECT_OK(c.Take(1, InFull("x", 2), 0));
  EXPECT_OK(c.Take(0, InFull("stale"), 0));
  Sent sent = c.Step(0);
  EXPECT_EQ(Items(To(sent, 0)), "x!");
  EXPECT_TRUE(To(sent, 0).confirm && To(sent, 1).confirm);
  // Rank 1 is in its next step already; rank 0's tensor is of the failed one.
  EXPECT_OK(c.Take(1, InFull("stale", 4, 1), 0));
  EXPECT_EQ(c.Step(0).size(), size_t{0});
  EXPECT_TRUE(c.waiting());
  Announcement word = Withdraw("stale", 1);
  EXPECT_OK(c.Take(0, word, 0));
  sent = c.Step(0);
  EXPECT_EQ(Items(To(sent, 0)), "");
  EXPECT_EQ(To(sent, 0).withdrawn.size(), size_t{1});
  EXPECT_OK(c.Take(0, InFull("stale", 4, 1), 0));
  EXPECT_EQ(Items(To(c.Step(0), 1)), "stale");
}

TEST(ARankThatHasLeftDoesNotHoldTheFence) {
  Coordinator c(OptionsOf(2));
  EXPECT_OK(c.Take(0, InFull("x", 1), 0));
  EXPECT_OK(c.Take(1, InFull("x", 2), 0));
  c.Step(0);
  for (int r = 0; r < 2; ++r) EXPECT_OK(c.Take(r, InFull("y"), 0));
  EXPECT_OK(c.Take(1, Leave(), 0));
  EXPECT_EQ(c.Step(0).size(), size_t{0});
  EXPECT_OK(c.Take(0, Seen(1), 0));
  EXPECT_EQ(Items(To(c.Step(0), 0)), "y");  // complete before the rank left
}

TEST(ALeavingRankFailsWhatCanNoLongerHappen) {
  for (int leaver : {0, 1}) {
    Coordinator c(OptionsOf(2));
    const int other = 1 - leaver;
    EXPECT_OK(c.Take(other, InFull("x"), 0));
    EXPECT_OK(c.Take(leaver, Leave("ValueError: no data"), 0));
    Sent sent = c.Step(0);
    ASSERT_EQ(sent.size(), size_t{1});
    EXPECT_EQ(sent[0].first, other);
    const Status& verdict = sent[0].second->items[0].decision.verdict;
    const std::string who = std::to_string(leaver);
    EXPECT_ERROR(verdict, StatusCode::kAborted,
                 "allreduce 'x' cannot be completed: rank " + who + " (host host" + who +
                     ") has left the job: ValueError: no data");
    // And whatever comes later.
    EXPECT_OK(c.Take(other, InFull("y"), 0));
    EXPECT_EQ(Items(To(c.Step(0), other)), "y!");
    EXPECT_FALSE(c.waiting());
  }
}

TEST(EveryoneHearsThatEveryoneHasLeft) {
  Coordinator c(OptionsOf(3));
  for (int r : {2, 0, 1}) {
    EXPECT_EQ(c.Step(0).size(), size_t{0});
    EXPECT_OK(c.Take(r, Leave(), 0));
  }
  const Sent sent = c.Step(0);
  ASSERT_EQ(sent.size(), size_t{3});
  for (const auto& [to, a] : sent) EXPECT_TRUE(a->everyone_left);
  EXPECT_EQ(c.Step(0).size(), size_t{0});  // once
}

TEST(WhatIsCompleteIsDecidedBeforeTheEnd) {
  Coordinator::Options options = OptionsOf(2);
  options.cycle_time = 1.0;
  Coordinator c(options);
  for (int r = 0; r < 2; ++r) {
    Announcement a = Leave();
    a.requests.push_back(Ask("last"));
    EXPECT_OK(c.Take(r, a, 10.0));
    // The first one to leave fails what the other has not announced.
    if (r == 0) EXPECT_EQ(Items(To(c.Step(10.0), 0)), "last!");
  }
  const Agreement end = To(c.Step(20.0), 1);
  EXPECT_EQ(Items(end), "last!");
  EXPECT_TRUE(end.everyone_left);
}

TEST(ReadyTensorsWaitForOthersNoLongerThanTheCycle) {
  Coordinator::Options options = OptionsOf(1);
  options.cycle_time = 0.5;
  Coordinator c(options);
  EXPECT_OK(c.Take(0, InFull("x"), 10.0));
  EXPECT_EQ(c.wake_at(), 10.5);
  EXPECT_OK(c.Take(0, InFull("y"), 10.25));
  EXPECT_EQ(c.wake_at(), 10.5);
  EXPECT_EQ(c.Step(10.4375).size(), size_t{0});
  EXPECT_EQ(Items(To(c.Step(10.5), 0)), "x y");
}

TEST(StalledTensorsAreReportedOnce) {
  Coordinator::Options options = OptionsOf(3);
  options.stall_check_time = 60.0;
  Coordinator c(options);
  EXPECT_OK(c.Take(1, InFull("x"), 0.0));
  EXPECT_TRUE(c.wake_at() <= 60.0);
  int notices = 0;
  bool sign_of_life = false;
  for (double now = 0.0; now < 200.0; now += 1.0) {
    const Sent sent = c.Step(now);
    sign_of_life = sign_of_life || (now < 60.0 && To(sent, 1).confirm);
    const std::string notice = c.TakeWarning();
    if (notice.empty()) continue;
    ++notices;
    EXPECT_TRUE(now >= 60.0 && now <= 75.0);
    EXPECT_CONTAINS(notice, "allreduce 'x' has waited");
    EXPECT_CONTAINS(notice, "submitted by ranks [1], not by ranks [0, 2] (first on host host0)");
  }
  EXPECT_EQ(notices, 1);
  EXPECT_TRUE(sign_of_life);
}

// A failure holds up further agreements until all have taken note; a rank that never does is named.
TEST(ARankThatDoesNotTakeNoteOfAFailureIsNamed) {
  Coordinator::Options options = OptionsOf(3);
  options.stall_check_time = 60.0;
  Coordinator c(options);
  for (int r = 0; r < 3; ++r) EXPECT_OK(c.Take(r, InFull("x", r == 1 ? 5 : 4), 0.0));
  const Agreement failure = To(c.Step(0.0), 0);
  EXPECT_EQ(Items(failure), "x!");
  for (const int r : {0, 1}) EXPECT_OK(c.Take(r, Seen(failure.sequence), 1.0));
  for (int r = 0; r < 3; ++r) EXPECT_OK(c.Take(r, InFull("y"), 1.0));
  int notices = 0;
  for (double now = 1.0; now < 200.0; now += 1.0) {
    const Agreement mine = To(c.Step(now), 0);
    EXPECT_EQ(Items(mine), "");
    const std::string warning = c.TakeWarning();
    if (warning.empty()) continue;
    ++notices;
    EXPECT_TRUE(now >= 60.0 && now <= 75.0);
    EXPECT_CONTAINS(warning, "ranks [2] (first on host host2) have not acknowledged it");
  }
  EXPECT_EQ(notices, 1);
  EXPECT_OK(c.Take(2, Seen(failure.sequence), 200.0));
  EXPECT_EQ(Items(To(c.Step(200.0), 0)), "y");
}

TEST(ManyStalledTensorsAreNamedInShort) {
  Coordinator c(OptionsOf(2));
  for (int i = 0; i < 20; ++i) EXPECT_OK(c.Take(0, InFull("x" + std::to_string(i)), 0.0));
  (void)c.Step(100.0);
  EXPECT_CONTAINS(c.TakeWarning(), "and 12 more");
}

TEST(RanksThatWaitForEachOtherAreToldThatTheirOrdersDiffer) {
  Coordinator::Options options = OptionsOf(3);
  options.stall_check_time = 60.0;
  options.stall_shutdown_time = 90.0;
  Coordinator c(options);
  EXPECT_OK(c.Take(0, InFull("x"), 0.0));
  EXPECT_OK(c.Take(1, InFull("y"), 1.0));
  EXPECT_OK(c.Take(2, InFull("x"), 2.0));
  std::string warning;
  for (double now = 0.0; now < 85.0; now += 1.0) {
    (void)c.Step(now);
    warning += c.TakeWarning();
  }
  const char* const kOrders = "Calls that wait for their results before the next one";
  const bool one =
      warning.find("ranks [0, 2] have called 'x' and not 'y', ranks [1] the other way") !=
      std::string::npos;
  const bool other =
      warning.find("ranks [1] have called 'y' and not 'x', ranks [0, 2] the other way") !=
      std::string::npos;
  EXPECT_TRUE(one || other);
  EXPECT_CONTAINS(warning, kOrders);
  EXPECT_ERROR(To(c.Step(120.0), 1).items[0].decision.verdict, StatusCode::kAborted, kOrders);
}

TEST(RanksOfWhichOneWaitsAloneAreNotToldSo) {
  Coordinator::Options options = OptionsOf(2);
  options.stall_check_time = 60.0;
  Coordinator c(options);
  EXPECT_OK(c.Take(0, InFull("x"), 0.0));
  EXPECT_OK(c.Take(0, InFull("y"), 0.0));
  (void)c.Step(100.0);
  const std::string warning = c.TakeWarning();
  EXPECT_CONTAINS(warning, "A rank may be slow");
  EXPECT_TRUE(warning.find("wait for each other") == std::string::npos);
}

TEST(AStallEndsInAnErrorWhereAskedFor) {
  Coordinator::Options options = OptionsOf(2);
  options.stall_shutdown_time = 90.0;
  Coordinator c(options);
  EXPECT_OK(c.Take(1, InFull("x"), 0.0));
  EXPECT_EQ(Items(To(c.Step(89.0), 1)), "");
  const Agreement a = To(c.Step(120.0), 1);
  EXPECT_EQ(Items(a), "x!");
  EXPECT_ERROR(a.items[0].decision.verdict, StatusCode::kAborted,
               "TFHVD_STALL_SHUTDOWN_TIME_SECONDS");
  EXPECT_OK(c.Take(0, InFull("y"), 121.0));
  EXPECT_EQ(Items(To(c.Step(121.0), 0)), "y!");
}

TEST(WithoutTheCheckNothingIsReported) {
  Coordinator::Options options = OptionsOf(2);
  options.stall_check = false;
  Coordinator c(options);
  EXPECT_OK(c.Take(1, InFull("x"), 0.0));
  EXPECT_EQ(c.Step(1e6).size(), size_t{0});
  EXPECT_TRUE(c.wake_at() > 1e9);
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
