// What a rank holds for others, and what they copy from each other once a rank is lost.
#include "cc/elastic/ledger.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

Ledger::Result ResultOf(Collective kind, const std::string& name, int64_t elements = 4) {
  Ledger::Result result;
  Request* const request = result.request.Edit();
  request->kind = kind;
  request->key.name = name;
  if (kind != Collective::kBarrier && kind != Collective::kJoin) {
    request->tensors.push_back({DType::kFloat32, {elements}});
  }
  return result;
}

std::vector<std::string> Names(const Ledger& ledger) {
  std::vector<std::string> names;
  for (const Ledger::Result& result : ledger.results()) names.push_back(result.record().seq.name);
  return names;
}

TEST(TurnsCountWhatIsDone) {
  Ledger ledger;
  EXPECT_TRUE((ledger.SeqOf("a", 0) == CollectiveSeq{"a", 0}));
  EXPECT_TRUE((ledger.SeqOf("a", 2) == CollectiveSeq{"a", 2}));
  ledger.Done(ResultOf(Collective::kAllReduce, "a"), 1, 2);
  EXPECT_TRUE((ledger.SeqOf("a", 0) == CollectiveSeq{"a", 1}));
  EXPECT_TRUE((ledger.SeqOf("b", 0) == CollectiveSeq{"b", 0}));
}

// A ledger guesses which one comes next: whatever the order, and whichever request has the name.
TEST(TurnsCountWhateverComesNext) {
  Ledger ledger;
  std::vector<SharedRequest> requests;
  for (const char* name : {"a", "b", "c", "a"}) {  // the last one: of another shape, for instance
    requests.push_back(ResultOf(Collective::kAllReduce, name).request);
  }
  std::map<std::string, int64_t> done;
  uint64_t entry = 0;
  for (const size_t which : {0, 1, 2, 0, 1, 2, 0, 2, 1, 3, 1, 2, 3, 3, 0, 0, 1, 2, 0, 1, 3, 2}) {
    Ledger::Result result;
    result.request = requests[which];
    ++entry;
    ledger.Done(std::move(result), entry, entry + 1);
    const std::string& name = requests[which]->key.name;
    EXPECT_EQ(ledger.results().back().seq, done[name]++);
    for (const char* each : {"a", "b", "c"}) {
      EXPECT_TRUE((ledger.SeqOf(each, 0) == CollectiveSeq{each, done[each]}));
    }
  }
  ledger.Done(ResultOf(Collective::kJoin, "join"), entry + 1, entry + 2);
  const CollectiveSeq first = ledger.SeqOf("b", 0);
  for (const size_t which : {1, 2, 1}) {
    Ledger::Result result;
    result.request = requests[which];
    ledger.Done(std::move(result), entry, entry + 1);
  }
  EXPECT_EQ(ledger.SeqOf("b", 0).number, first.number + 2);
}

// Some have joined and others not: they have made different numbers of steps.
TEST(TurnsCountAnewOnceAllHaveJoined) {
  Ledger longer;
  Ledger shorter;
  for (int i = 0; i < 3; ++i) longer.Done(ResultOf(Collective::kAllReduce, "a"), 1, 2);
  shorter.Done(ResultOf(Collective::kAllReduce, "a"), 1, 2);
  EXPECT_FALSE(longer.SeqOf("a", 0) == shorter.SeqOf("a", 0));
  EXPECT_TRUE(longer.SeqOf("join", 0) == shorter.SeqOf("join", 0));
  longer.Done(ResultOf(Collective::kJoin, "join"), 3, 4);
  EXPECT_FALSE(longer.SeqOf("join", 0) == shorter.SeqOf("join", 0));
  shorter.Done(ResultOf(Collective::kJoin, "join"), 3, 4);
  EXPECT_TRUE(longer.SeqOf("a", 0) == shorter.SeqOf("a", 0));
  EXPECT_TRUE(longer.SeqOf("join", 0) == shorter.SeqOf("join", 0));
}

TEST(ResultsAreHeldUntilAllHaveThem) {
  Ledger ledger;
  ledger.Done(ResultOf(Collective::kAllReduce, "a"), 1, 3);  // entry 2 was submitted before
  ledger.Done(ResultOf(Collective::kAllReduce, "b"), 2, 3);  // and may have been of the same call
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b"}));
  ledger.Done(ResultOf(Collective::kBroadcast, "c"), 3, 4);  // its root need not wait for anybody
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b", "c"}));
  ledger.Done(ResultOf(Collective::kAllReduce, "none", 0), 4, 5);  // without data there is no call
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b", "c", "none"}));
  ledger.Done(ResultOf(Collective::kBarrier, "d"), 5, 6);
  EXPECT_EQ(Names(ledger), std::vector<std::string>{"d"});
  EXPECT_TRUE(ledger.Find({"a", 0}) == nullptr);
  EXPECT_TRUE(ledger.Find({"d", 0}) != nullptr);
}

// A rank that waits for a collective that has failed would wait for ranks that have continued.
TEST(AFailureHasItsTurnAndIsCopied) {
  Ledger ledger;
  Ledger::Result failed = ResultOf(Collective::kBroadcast, "a");
  failed.failure = Status::DataLoss("its root is lost");
  ledger.Done(std::move(failed), 1, 2);
  EXPECT_TRUE((ledger.SeqOf("a", 0) == CollectiveSeq{"a", 1}));
  Position has;
  has.has.push_back(ledger.Find({"a", 0})->record());
  Position waits;
  waits.waits.push_back({"a", 0});
  const std::vector<Copy> copies = CopiesOf({has, waits});
  EXPECT_EQ(copies.size(), size_t{1});
  EXPECT_FALSE(copies[0].record.copies);
  EXPECT_TRUE(copies[0].record.bytes.empty());
  Position received;
  EXPECT_OK(Decode(Encode(has), &received));
  EXPECT_ERROR(received.has[0].failure, StatusCode::kDataLoss, "its root is lost");
}

// Ranks agree on it by messages, while calls of before still run.
TEST(AFailureDoesNotProveThatAllHaveTheResultsOfBefore) {
  Ledger ledger;
  ledger.Done(ResultOf(Collective::kBroadcast, "a"), 1, 2);
  Ledger::Result failed = ResultOf(Collective::kAllReduce, "b");
  failed.failure = Status::InvalidArgument("Mismatched shapes");
  ledger.Done(std::move(failed), 2, 3);
  EXPECT_EQ(Names(ledger), (std::vector<std::string>{"a", "b"}));
  ledger.Done(ResultOf(Collective::kAllReduce, "c"), 3, 4);
  EXPECT_EQ(Names(ledger), std::vector<std::string>{"c"});
}

TEST(MemoryOfResultsIsLetGo) {
  Ledger ledger;
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> held = memory;
  Ledger::Result result = ResultOf(Collective::kAllReduce, "a");
  result.memory = std::move(memory);
  ledger.Done(std::move(result), 1, 2);
  EXPECT_FALSE(held.expired());
  ledger.Done(ResultOf(Collective::kAllReduce, "b"), 2, 3);
  EXPECT_TRUE(held.expired());
}

// Names that do not come again are forgotten; the order of those that do is still guessed.
TEST(NamesCostNothingInTheLongRun) {
  Ledger ledger;
  uint64_t entry = 0;
  const auto done = [&](const std::string& name) {
    ++entry;
    ledger.Done(ResultOf(Collective::kAllGather, name), entry, entry + 1);
  };
  for (int step = 0; step < 100000; ++step) {
    done("loss_" + std::to_string(step));
    done("gradient");
    if (step % 1000 == 999) ledger.LetGo();
    EXPECT_TRUE(ledger.names() < 10000);
  }
  EXPECT_EQ(ledger.results().size(), size_t{0});
  EXPECT_TRUE((ledger.SeqOf("gradient", 0) == CollectiveSeq{"gradient", 0}));
  done("gradient");
  EXPECT_TRUE((ledger.SeqOf("gradient", 1) == CollectiveSeq{"gradient", 2}));
}

// One rank has passed a barrier, and done something after it, as another is lost within it.
TEST(WhoHasNotPassedABarrierCatchesUp) {
  Ledger ahead;
  Ledger behind;
  for (Ledger* each : {&ahead, &behind}) {
    each->Done(ResultOf(Collective::kJoin, "join"), 1, 2);
    each->Done(ResultOf(Collective::kAllGather, "x"), 2, 3);
  }
  ahead.LetGo();
  ahead.Done(ResultOf(Collective::kAllGather, "x"), 3, 4);
  std::vector<Position> positions(3);
  positions[0].barriers = ahead.barriers();
  positions[0].has = {ahead.results().front().record()};
  positions[1].barriers = behind.barriers();
  positions[1].has = {behind.results().front().record()};
  for (int nth : {0, 1}) positions[1].waits.push_back(behind.SeqOf("x", nth));
  positions[2].is_new = true;
  positions[2].waits = {{"x", 0}};
  behind.CatchUp(CatchUp(&positions));
  EXPECT_TRUE(positions[1].has.empty());
  EXPECT_TRUE(positions[2].waits.empty());
  const std::vector<Copy> copies = CopiesOf(positions);
  ASSERT_EQ(copies.size(), size_t{1});
  EXPECT_EQ(copies[0].root, 0);
  EXPECT_TRUE(behind.SeqOf("x", 0) == copies[0].record.seq);
  behind.Done(ResultOf(Collective::kAllGather, "x"), 3, 4);
  EXPECT_TRUE(behind.SeqOf("x", 0) == ahead.SeqOf("x", 0));
  Ledger fresh;
  EXPECT_OK(fresh.AdoptCounts(behind.EncodeCounts()));
  EXPECT_EQ(fresh.barriers(), int64_t{1});
  EXPECT_TRUE(fresh.SeqOf("x", 0) == ahead.SeqOf("x", 0));
}

TEST(AResultSaysWhatItIs) {
  Ledger ledger;
  ledger.Done(ResultOf(Collective::kAllReduce, "a", 5), 1, 2);
  const ResultRecord reduced = ledger.Find({"a", 0})->record();
  EXPECT_TRUE(reduced.copies);
  EXPECT_TRUE(reduced.shapes == (std::vector<Shape>{{5}}));
  EXPECT_EQ(reduced.bytes, std::vector<int64_t>{20});
  EXPECT_TRUE(reduced.first_dims.empty());

  Ledger::Result gathered = ResultOf(Collective::kAllGather, "b", 5);
  gathered.found = std::make_unique<FoundTogether>();
  gathered.found->shapes = {{8}};
  gathered.found->first_dims = {{5, 3}};
  gathered.found->number = 4;
  ledger.Done(std::move(gathered), 2, 3);
  const ResultRecord record = ledger.Find({"b", 0})->record();
  EXPECT_TRUE((record.seq == CollectiveSeq{"b", 0}));
  EXPECT_TRUE(record.shapes == (std::vector<Shape>{{8}}));
  EXPECT_EQ(record.bytes, std::vector<int64_t>{32});
  EXPECT_EQ(record.first_dims, (std::vector<std::vector<int64_t>>{{5, 3}}));
  EXPECT_EQ(record.number, int64_t{4});

  ledger.Done(ResultOf(Collective::kAllToAll, "c"), 3, 4);
  EXPECT_FALSE(ledger.Find({"c", 0})->record().copies);
}

ResultRecord Has(const std::string& name, int64_t number) {
  ResultRecord record;
  record.seq = {name, number};
  record.shapes = {{3, 2}};
  record.bytes = {24};
  record.first_dims = {{1, 2}};
  record.number = 7;
  return record;
}

TEST(WhoIsNewTakesOverTheCounts) {
  Ledger old;
  old.Done(ResultOf(Collective::kAllReduce, "a"), 1, 2);
  old.Done(ResultOf(Collective::kJoin, "join"), 2, 3);
  for (int i = 0; i < 3; ++i) old.Done(ResultOf(Collective::kAllReduce, "b"), 3, 4);
  Ledger fresh;
  EXPECT_OK(fresh.AdoptCounts(old.EncodeCounts()));
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(fresh.SeqOf(name, 0) == old.SeqOf(name, 0));
  }
  EXPECT_TRUE(fresh.results().empty());
  EXPECT_ERROR(fresh.AdoptCounts("x"), StatusCode::kInternal, "malformed");
}

TEST(APositionSurvivesItsTravel) {
  Position position;
  position.waits = {{"a", 5}, {"", 0}};
  position.has = {Has("b", int64_t{3} << 40)};
  position.has.back().copies = false;
  position.barriers = 3;
  position.is_new = true;
  position.by_commits = true;
  Position back;
  ASSERT_OK(Decode(Encode(position), &back));
  EXPECT_EQ(back.barriers, int64_t{3});
  EXPECT_TRUE(back.is_new);
  EXPECT_FALSE(back.lost_some);
  EXPECT_TRUE(back.by_commits);
  EXPECT_TRUE(back.waits == position.waits);
  ASSERT_EQ(back.has.size(), size_t{1});
  EXPECT_TRUE(back.has[0].seq == position.has[0].seq);
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
  EXPECT_TRUE((copies[0].record.seq == CollectiveSeq{"a", 1}));
  EXPECT_TRUE((copies[1].record.seq == CollectiveSeq{"b", 0}));
  EXPECT_EQ(copies[0].root, 1);
  EXPECT_EQ(copies[1].root, 1);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
