// Which numbers are taken back: those of what was used longest ago and is announced by nobody.
#include "cc/negotiate/cache_ids.h"

#include <memory>
#include <string>
#include <vector>

#include "cc/negotiate/tally.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// Rank 0's part in a job of two ranks, in so far as it is about numbers.
struct Numbers {
  explicit Numbers(int64_t capacity) : ids(capacity, tally.idle()) {}

  // The rank asks for it, by its number where it has one.
  Slot* Announce(const std::string& name, int rank) {
    const auto members = std::make_shared<const std::vector<int>>(std::vector<int>{0, 1});
    Slot* const slot = tally.Open(Key{0, name}, members);
    if (slot->id != kNoId) {
      tally.AddById(slot, rank, 0, 0.0);
    } else {
      Request request;
      request.key.name = name;
      tally.AddInFull(slot, rank, request, 0, 0.0);
    }
    return slot;
  }

  // All ask for it, and get it; what is evicted for its number.
  CacheId Decide(const std::string& name) {
    for (const int rank : {0, 1}) {
      Slot* const slot = Announce(name, rank);
      if (rank == 0) continue;
      slot->last_used = ++sequence;
      return Number(slot);
    }
    return kNoId;
  }

  CacheId Number(Slot* slot) {
    slot->last_used = sequence;
    const CacheId evicted = ids.Assign(slot, sequence);
    tally.Clear(slot);
    return evicted;
  }

  CacheId IdOf(const std::string& name) { return tally.Find(Key{0, name})->id; }

  Tally tally{2};
  CacheIds ids;
  uint64_t sequence = 0;
};

TEST(WhatWasUsedLongestAgoLosesItsNumber) {
  Numbers numbers(3);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(numbers.Decide(name), kNoId);
  EXPECT_EQ(numbers.Decide("a"), kNoId);  // used again
  EXPECT_EQ(numbers.Decide("d"), numbers.IdOf("b"));
  EXPECT_EQ(numbers.Decide("e"), numbers.IdOf("c"));
  EXPECT_EQ(numbers.Decide("f"), numbers.IdOf("a"));
  EXPECT_EQ(numbers.Decide("a"), numbers.IdOf("d"));  // and has a number again
  EXPECT_TRUE(numbers.ids.Find(numbers.IdOf("a")) == numbers.tally.Find(Key{0, "a"}));
}

TEST(WhatSomeRankHasAnnouncedKeepsItsNumber) {
  Numbers numbers(2);
  EXPECT_EQ(numbers.Decide("a"), kNoId);
  EXPECT_EQ(numbers.Decide("b"), kNoId);
  Slot* const a = numbers.Announce("a", 1);
  EXPECT_EQ(numbers.Decide("c"), numbers.IdOf("b"));
  Slot* const c = numbers.Announce("c", 0);
  EXPECT_EQ(numbers.Decide("d"), kNoId);  // stays without
  EXPECT_EQ(numbers.IdOf("d"), kNoId);
  numbers.tally.Remove(a, 1);  // taken back, after "c" was used
  numbers.tally.Remove(c, 0);
  EXPECT_EQ(numbers.Decide("d"), numbers.IdOf("a"));
}

TEST(WhatWasDecidedAtTheSameTimeKeepsItsNumber) {
  Numbers numbers(1);
  EXPECT_EQ(numbers.Decide("a"), kNoId);
  for (const int rank : {0, 1}) {
    Slot* const slot = numbers.Announce("b", rank);
    if (rank == 1) EXPECT_EQ(numbers.Number(slot), kNoId);
  }
  EXPECT_EQ(numbers.Decide("b"), numbers.IdOf("a"));
}

TEST(EvictedNumbersAreForgottenOnceAllHaveSeenIt) {
  Numbers numbers(2);
  for (const char* name : {"a", "b", "c", "d"}) (void)numbers.Decide(name);
  EXPECT_TRUE(numbers.ids.Forget({4, 2}).empty());
  EXPECT_EQ(numbers.Decide("a"), numbers.IdOf("c"));  // "a" is not among the evicted any more
  std::vector<Key> forgotten = numbers.ids.Forget({4, 4});
  ASSERT_EQ(forgotten.size(), size_t{1});
  EXPECT_EQ(forgotten[0].name, std::string("b"));
  forgotten = numbers.ids.Forget({5, 5});
  ASSERT_EQ(forgotten.size(), size_t{1});
  EXPECT_EQ(forgotten[0].name, std::string("c"));
  EXPECT_TRUE(numbers.ids.Forget({9, 9}).empty());
}

// Each has its place among the others' links, wherever it is taken out.
TEST(IdleSlotsAreInTheOrderInWhichTheyCame) {
  Slot slots[3];
  for (const size_t taken : {0, 1, 2}) {
    IdleSlots idle;
    for (Slot& slot : slots) idle.Add(&slot);
    idle.Remove(&slots[taken]);
    idle.Remove(&slots[taken]);  // once is enough
    idle.Add(&slots[taken]);
    for (size_t i = 0; i < 3; ++i) {
      if (i == taken) continue;
      EXPECT_TRUE(idle.oldest() == &slots[i]);
      idle.Remove(&slots[i]);
    }
    EXPECT_TRUE(idle.oldest() == &slots[taken]);
    idle.Remove(&slots[taken]);
    EXPECT_TRUE(idle.oldest() == nullptr);
  }
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
