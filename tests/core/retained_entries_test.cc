// Entries that are found by their numbers, and kept in the order of submission.
#include "cc/elastic/retained_entries.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

RetainedEntries::Pointer Named(const std::string& name) {
  Entry entry;
  entry.request.Edit()->key.name = name;
  entry.done = Completion([](const Status&) {});
  static BlockCache blocks;
  return RetainedEntry::Make(std::move(entry), &blocks);
}

std::vector<std::string> Names(const RetainedEntries& entries) {
  std::vector<std::string> names;
  entries.ForEach([&](const RetainedEntry* entry) { names.push_back(entry->request().key.name); });
  return names;
}

bool Any(const RetainedEntry&) { return true; }

TEST(EntriesAreFoundByTheirNumbers) {
  RetainedEntries entries;
  EXPECT_TRUE(entries.empty());
  EXPECT_TRUE(entries.Find(1) == nullptr);
  entries.Add(3, Named("a"));
  entries.Add(4, Named("b"));
  entries.Add(7, Named("c"));  // 5 and 6 were refused
  EXPECT_EQ(Names(entries), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(entries.Find(7)->request().key.name, std::string("c"));
  for (const EntryId none : {0, 2, 5, 6, 8}) EXPECT_TRUE(entries.Find(none) == nullptr);
  EXPECT_EQ(entries.Remove(4)->request().key.name, std::string("b"));
  EXPECT_TRUE(entries.Find(4) == nullptr);
  EXPECT_EQ(Names(entries), (std::vector<std::string>{"a", "c"}));
  entries.Remove(3);
  EXPECT_FALSE(entries.empty());
  EXPECT_EQ(entries.Find(7)->request().key.name, std::string("c"));
  entries.Remove(7);
  EXPECT_TRUE(entries.empty());
  entries.Add(20, Named("d"));
  EXPECT_TRUE(entries.Find(7) == nullptr);
  EXPECT_EQ(Names(entries), std::vector<std::string>{"d"});
}

TEST(TheNextOfAKindIsFound) {
  RetainedEntries entries;
  EXPECT_EQ(entries.NextAfter(0, Any), EntryId{0});
  for (const EntryId number : {2, 3, 5}) entries.Add(number, Named(std::to_string(number)));
  EXPECT_EQ(entries.NextAfter(0, Any), EntryId{2});
  EXPECT_EQ(entries.NextAfter(2, Any), EntryId{3});
  EXPECT_EQ(entries.NextAfter(3, Any), EntryId{5});
  EXPECT_EQ(entries.NextAfter(5, Any), EntryId{0});
  entries.Remove(2);  // as while all of a kind are removed
  EXPECT_EQ(entries.NextAfter(2, Any), EntryId{3});
  const auto is_five = [](const RetainedEntry& e) { return e.request().key.name == "5"; };
  EXPECT_EQ(entries.NextAfter(0, is_five), EntryId{5});
  EXPECT_EQ(entries.NextAfter(5, is_five), EntryId{0});
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
