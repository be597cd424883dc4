// The response cache: exactly what was agreed is known by its number.
#include "cc/negotiate/response_cache.h"

#include <string>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

Request Ask(const std::string& name, int64_t length = 4) {
  Request q;
  q.key.name = name;
  q.tensors.push_back({DType::kFloat32, {length}});
  return q;
}
Decision About(const Request& q) {
  Decision d;
  d.key = q.key;
  return d;
}

TEST(FindsExactlyWhatWasPut) {
  ResponseCache cache;
  const Request x = Ask("x");
  EXPECT_EQ(cache.Find(x), kNoId);
  cache.Put(3, x, About(x));
  EXPECT_EQ(cache.Find(x), CacheId{3});
  EXPECT_EQ(cache.Find(Ask("x", 5)), kNoId);
  EXPECT_EQ(cache.Find(Ask("y")), kNoId);
  Request other = x;
  other.key.process_set = 1;
  EXPECT_EQ(cache.Find(other), kNoId);
  other = x;
  other.reduction.prescale = 0.5;
  EXPECT_EQ(cache.Find(other), kNoId);
  EXPECT_TRUE(*cache.Get(3)->request == x);
  EXPECT_TRUE(cache.Get(3)->decision == About(x));
  EXPECT_TRUE(cache.Get(4) == nullptr);
}

TEST(PutReplaces) {
  ResponseCache cache;
  cache.Put(3, Ask("x"), About(Ask("x")));
  cache.Put(3, Ask("x", 5), About(Ask("x", 5)));
  EXPECT_EQ(cache.Find(Ask("x")), kNoId);
  EXPECT_EQ(cache.Find(Ask("x", 5)), CacheId{3});
  EXPECT_EQ(cache.size(), size_t{1});
}

TEST(EraseForgets) {
  ResponseCache cache;
  const Request x = Ask("x");
  cache.Put(3, x, About(x));
  cache.Erase(2);  // not stored: ignored
  EXPECT_EQ(cache.Find(x), CacheId{3});
  cache.Erase(3);
  EXPECT_EQ(cache.Find(x), kNoId);
  EXPECT_TRUE(cache.Get(3) == nullptr);
  EXPECT_EQ(cache.size(), size_t{0});
  cache.Put(7, x, About(x));
  EXPECT_EQ(cache.Find(x), CacheId{7});
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
