// Elastic jobs as threads, put through one loss or join after the other, for a range of seeds.
// Started by tests/long/schedules.py:
//
//   elastic_schedules FIRST COUNT
//
// Ends with 1 at the first seed with which something is wrong, which it prints.
#include <cstdio>
#include <cstdlib>

#include "tests/core/elastic_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// Short jobs: most of what can meet, meets within a few steps.
bool Try(unsigned seed) {
  if (seed % 2 == 0) {
    ComeAndGo(seed, 4);
  } else {
    Training of;
    of.ranks = 2 + static_cast<int>(seed / 2 % 3);
    of.steps = 8;
    of.tensors = 3;
    of.large = seed % 16 == 1 ? 50000 : 1000;
    of.broadcasts = seed % 8 == 3;
    Survive(seed, of);
  }
  return Registry::Get().failures() == 0;
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FIRST COUNT\n", argv[0]);
    return 2;
  }
  const auto first = static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10));
  const auto count = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  for (unsigned seed = first; seed - first < count; ++seed) {
    if (Try(seed)) continue;
    std::printf("seed %u: WRONG\n", seed);
    return 1;
  }
  std::printf("%u schedules: ok\n", count);
  return 0;
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) { return tfhvd::testing::Main(argc, argv); }
