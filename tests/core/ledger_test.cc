// What a rank holds for others, and what they copy from each other once a rank is lost.
#include "cc/elastic/ledger.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

Request Of(Collective kind, const std::string& name, int64_t elements = 4) {
  Request request;
  request.kind = kind;
  request.key.name = name;
  if (kind != Collective::kBarrier && kind != Collective::kJoin) {
    request.tensors.push_back({DType::kFloat32, {elements}});
  }
  return request;
}

std::vector<std::string> Names(const Ledger& ledger) {
  std::vector<std::string> names;
  for (const Ledger::Result& result : ledger.results()) names.push_back(result.outcome.turn.name);
  return names;
}

TEST(TurnsCountWhatIsDone) {
  Ledger ledger;
  EXPECT_TRUE((ledger.TurnOf("a", 0) == Turn{"a", 0}));
  EXPECT_TRUE((ledger.TurnOf("a", 2) == Turn{"a", 2}));
  ledger.Done(Of(Collective::kAllReduce, "a"), {}, 1, 2);
  EXPECT_TRUE((ledger.TurnOf("a", 0) == Turn{"a", 1}));
  EXPECT_TRUE((ledger.TurnOf("b", 0) == Turn{"b", 0}));
}

// Some have joined and others not: they have made different numbers of steps.
TEST(TurnsCountAnewOnceAllHaveJoined) {
  Ledger longer;
  Ledger shorter;
  for (int i = 0; i < 3; ++i) longer.Done(Of(Collective::kAllReduce, "a"), {}, 1, 2);
  shorter.Done(Of(Collective::kAllReduce, "a"), {}, 1, 2);
  EXPECT_FALSE(longer.TurnOf("a", 0) == shorter.TurnOf("a", 0));
  EXPECT_TRUE(longer.TurnOf("join", 0) == shorter.TurnOf("join", 0));
  longer.Done(Of(Collective::kJoin, "join"), {}, 3, 4);
  EXPECT_FALSE(longer.TurnOf("join", 0) == shorter.TurnOf("join", 0));
  shorter.Done(Of(Collective::kJoin, "join"), {}, 3, 4);
  EXPECT_TRUE(longer.TurnOf("a", 0) == shorter.TurnOf("a", 0));
  EXPECT_TRUE(longer.TurnOf("join", 0) == shorter.TurnOf("join", 0));
}

TEST(ResultsAreHeldUntilAllHaveThem) {
  Ledger ledger;
  ledger.Done(Of(Collective::kAllReduce, "a"), {}, 1, 3);  // entry 2 was submitted before
  ledger.Done(Of(Collective::kAllReduce, "b"), {}, 2, 3);  // and may have been of the same call
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b"}));
  ledger.Done(Of(Collective::kBroadcast, "c"), {}, 3, 4);  // its root need not wait for anybody
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b", "c"}));
  ledger.Done(Of(Collective::kAllReduce, "none", 0), {}, 4, 5);  // without data there is no call
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b", "c", "none"}));
  ledger.Done(Of(Collective::kBarrier, "d"), {}, 5, 6);
  EXPECT_EQ(Names(ledger), std::vector<std::string>{"d"});
  EXPECT_TRUE(ledger.Find({"a", 0}) == nullptr);
  EXPECT_TRUE(ledger.Find({"d", 0}) != nullptr);
}

TEST(MemoryOfResultsIsLetGo) {
  Ledger ledger;
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> held = memory;
  Ledger::Result result;
  result.memory = std::move(memory);
  ledger.Done(Of(Collective::kAllReduce, "a"), std::move(result), 1, 2);
  EXPECT_FALSE(held.expired());
  ledger.Done(Of(Collective::kAllReduce, "b"), {}, 2, 3);
  EXPECT_TRUE(held.expired());
}

Outcome Has(const std::string& name, int64_t number) {
  Outcome outcome;
  outcome.turn = {name, number};
  outcome.shapes = {{3, 2}};
  outcome.bytes = {24};
  outcome.first_dims = {{1, 2}};
  outcome.number = 7;
  return outcome;
}

TEST(WhoIsNewTakesOverTheCounts) {
  Ledger old;
  old.Done(Of(Collective::kAllReduce, "a"), {}, 1, 2);
  old.Done(Of(Collective::kJoin, "join"), {}, 2, 3);
  for (int i = 0; i < 3; ++i) old.Done(Of(Collective::kAllReduce, "b"), {}, 3, 4);
  Ledger fresh;
  EXPECT_OK(fresh.TakeOverCounts(old.EncodeCounts()));
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(fresh.TurnOf(name, 0) == old.TurnOf(name, 0));
  }
  EXPECT_TRUE(fresh.results().empty());
  EXPECT_ERROR(fresh.TakeOverCounts("x"), StatusCode::kInternal, "malformed");
}

TEST(APositionSurvivesItsTravel) {
  Position position;
  position.waits = {{"a", 5}, {"", 0}};
  position.has = {Has("b", int64_t{3} << 40)};
  position.has.back().copies = false;
  position.is_new = true;
  Position back;
  ASSERT_OK(Decode(Encode(position), &back));
  EXPECT_TRUE(back.is_new);
  EXPECT_TRUE(back.waits == position.waits);
  ASSERT_EQ(back.has.size(), size_t{1});
  EXPECT_TRUE(back.has[0].turn == position.has[0].turn);
  EXPECT_TRUE(back.has[0].shapes == position.has[0].shapes);
  EXPECT_TRUE(back.has[0].first_dims == position.has[0].first_dims);
  EXPECT_EQ(back.has[0].bytes, position.has[0].bytes);
  EXPECT_EQ(back.has[0].number, int64_t{7});
  EXPECT_FALSE(back.has[0].copies);
}

TEST(AMalformedPositionIsAnError) {
  Position position;
  position.waits = {{"name", 5}};
  position.has = {Has("b", 1)};
  const std::string whole = Encode(position);
  for (size_t length = 0; length < whole.size(); ++length) {
    Position back;
    EXPECT_ERROR(Decode(whole.substr(0, length), &back), StatusCode::kInternal, "malformed");
  }
  Position back;
  EXPECT_ERROR(Decode(whole + "more", &back), StatusCode::kInternal, "malformed");
}

TEST(WhatSomeHaveAndOthersWaitForIsCopied) {
  std::vector<Position> positions(3);
  positions[0].waits = {{"a", 1}, {"b", 0}, {"c", 0}};
  positions[1].waits = {{"c", 0}};
  positions[1].has = {Has("b", 0), Has("a", 1), Has("a", 0)};
  positions[2].has = {Has("b", 0)};
  const std::vector<Copy> copies = CopiesOf(positions);
  ASSERT_EQ(copies.size(), size_t{2});
  EXPECT_TRUE((copies[0].outcome.turn == Turn{"a", 1}));
  EXPECT_TRUE((copies[1].outcome.turn == Turn{"b", 0}));
  EXPECT_EQ(copies[0].root, 1);
  EXPECT_EQ(copies[1].root, 1);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
