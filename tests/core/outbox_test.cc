// What goes to all ranks is one agreement; what goes to some is theirs.
#include "cc/negotiate/outbox.h"

#include <utility>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

Agreement::Item Item(CacheId id) {
  Agreement::Item item;
  item.id = id;
  return item;
}

std::vector<int> IdsOf(const Agreement& agreement) {
  std::vector<int> ids;
  for (const Agreement::Item& item : agreement.items) ids.push_back(static_cast<int>(item.id));
  return ids;
}

void ToAll(Outbox* outbox, CacheId id) {
  outbox->All([id](Agreement* a) { a->items.push_back(Item(id)); });
}

TEST(NothingIsSentWhereThereIsNothing) {
  Outbox outbox(3);
  EXPECT_EQ(outbox.Take(1).size(), size_t{0});
  (void)outbox.Of(1);
  EXPECT_EQ(outbox.Take(2).size(), size_t{0});
}

TEST(WhatGoesToAllIsOne) {
  Outbox outbox(3);
  ToAll(&outbox, 1);
  const auto sent = outbox.Take(7);
  ASSERT_EQ(sent.size(), size_t{3});
  for (int r = 0; r < 3; ++r) {
    const auto& [to, agreement] = sent[static_cast<size_t>(r)];
    EXPECT_EQ(to, r);
    EXPECT_TRUE(agreement == sent[0].second);
    EXPECT_EQ(agreement->sequence, uint64_t{7});
    EXPECT_FALSE(agreement->confirm);
  }
  EXPECT_EQ(outbox.Take(8).size(), size_t{0});
}

// Every rank gets its items in the order in which they were decided.
TEST(WhatGoesToOneComesInItsPlace) {
  Outbox outbox(3);
  ToAll(&outbox, 1);
  outbox.Of(1)->items.push_back(Item(2));
  ToAll(&outbox, 3);
  outbox.Of(2)->withdrawn.push_back({0, "x"});
  const auto sent = outbox.Take(1);
  ASSERT_EQ(sent.size(), size_t{3});
  EXPECT_EQ(IdsOf(*sent[0].second), (std::vector<int>{1, 3}));
  EXPECT_EQ(IdsOf(*sent[1].second), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(IdsOf(*sent[2].second), (std::vector<int>{1, 3}));
  EXPECT_EQ(sent[0].second->withdrawn.size(), size_t{0});
  EXPECT_EQ(sent[2].second->withdrawn.size(), size_t{1});
}

TEST(WhoIsToAnswerIsSentWord) {
  Outbox outbox(4);
  outbox.Confirm(1);
  outbox.Confirm(3);
  auto sent = outbox.Take(1);
  ASSERT_EQ(sent.size(), size_t{2});
  EXPECT_EQ(sent[0].first, 1);
  EXPECT_EQ(sent[1].first, 3);
  EXPECT_TRUE(sent[0].second->confirm);
  EXPECT_TRUE(sent[0].second == sent[1].second);
  outbox.Confirm(2);
  outbox.Of(3)->items.push_back(Item(9));
  outbox.Confirm(3);
  ToAll(&outbox, 1);
  sent = outbox.Take(2);
  ASSERT_EQ(sent.size(), size_t{4});
  for (int r = 0; r < 4; ++r) EXPECT_EQ(sent[static_cast<size_t>(r)].second->confirm, r >= 2);
  EXPECT_EQ(IdsOf(*sent[2].second), std::vector<int>{1});
  EXPECT_EQ(IdsOf(*sent[3].second), (std::vector<int>{9, 1}));
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
