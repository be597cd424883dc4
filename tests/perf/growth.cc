// Prints what a steady step costs the negotiation as the job grows. After
// `python setup.py build_core_tests`:
//
//   build/core_tests/growth [--threads MOST]
//   build/core_tests/growth --evictions  the last table alone
//
// First real engines as threads of this process (no TensorFlow), 2 to 256 or MOST ranks, on one
// host and on hosts of 8: the messages and bytes of control planes, counted. Their time is of so
// many threads on the cores at hand, and says little. Then real leaders that exchange votes, up to
// 10,000 of them, and a real coordinator whose peers are played, up to 10,000 ranks: the time is
// rank 0's alone. How many messages the latter are where each host's travel together
// (cc/backends/hierarchical) is worked out on paper. The last table is of a coordinator that has
// fewer numbers than there are tensors.
#include "tests/core/growth.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

namespace tfhvd {
namespace {

constexpr int kTensors[] = {1, 100};

double PerStep(int64_t count, int steps) { return static_cast<double>(count) / steps; }

void PrintEngines(int most, int on_a_host) {
  std::printf(
      "engines as threads on %s, per steady step; msgs and bytes of control planes, votes of rank "
      "0\n%6s %8s | %12s %10s | %12s %10s | %6s %10s\n",
      on_a_host == 0 ? "one host" : "hosts of 8", "ranks", "tensors", "rank 0: msgs", "bytes",
      "others: msgs", "bytes", "votes", "us a step");
  for (int tensors : kTensors) {
    for (int ranks = std::max(2, 2 * on_a_host); ranks <= most; ranks *= 2) {
      Steady how;
      how.ranks = ranks;
      how.on_a_host = on_a_host;
      how.tensors = tensors;
      const Growth growth = MeasureGrowth(how);
      Traffic others;
      for (size_t r = 1; r < growth.traffic.size(); ++r) {
        if (growth.traffic[r].messages() > others.messages()) others = growth.traffic[r];
      }
      std::printf("%6d %8d | %12.2f %10.1f | %12.2f %10.1f | %6.2f %10.0f\n", ranks, tensors,
                  PerStep(growth.traffic[0].messages(), how.steps),
                  PerStep(growth.traffic[0].bytes(), how.steps),
                  PerStep(others.messages(), how.steps), PerStep(others.bytes(), how.steps),
                  PerStep(growth.traffic[0].votes, how.steps), growth.seconds * 1e6);
      std::fflush(stdout);
    }
  }
}

// Messages to and from rank 0 where the ranks of each host send theirs together: its own host's
// ranks, and one for each other host.
int64_t MessagesByHost(int64_t ranks, int64_t on_each_host) {
  const int64_t hosts = (ranks + on_each_host - 1) / on_each_host;
  return 2 * (std::min(ranks, on_each_host) - 1 + hosts - 1);
}

void PrintLeaders() {
  std::printf("\na round of a locked step on several hosts, rank 0's part\n%6s | %10s %12s %10s\n",
              "hosts", "messages", "bytes", "us a round");
  for (int hosts : {2, 16, 125, 1000, 10000}) {
    const int turns = std::max(20, 20000 / hosts);
    const Growth growth = PlayLeaders(hosts, turns);
    std::printf("%6d | %10.0f %12.0f %10.2f\n", hosts, PerStep(growth.traffic[0].messages(), turns),
                PerStep(growth.traffic[0].bytes(), turns), growth.seconds * 1e6);
    std::fflush(stdout);
  }
}

void PrintStar() {
  std::printf(
      "\na step that is negotiated, rank 0's part; by host: messages with 8 ranks on each, on "
      "paper\n"
      "%6s %8s | %10s %12s %10s | %8s\n",
      "ranks", "tensors", "messages", "bytes", "us a step", "by host");
  for (int tensors : kTensors) {
    for (int ranks : {2, 16, 128, 1000, 10000}) {
      const int steps = std::max(2, 20000 / ranks);
      const Growth growth = PlayStar(ranks, tensors, steps);
      std::printf("%6d %8d | %10.0f %12.0f %10.1f | %8lld\n", ranks, tensors,
                  PerStep(growth.traffic[0].messages(), steps),
                  PerStep(growth.traffic[0].bytes(), steps), growth.seconds * 1e6,
                  static_cast<long long>(MessagesByHost(ranks, 8)));
      std::fflush(stdout);
    }
  }
}

// In MiB, the most that this process has had so far.
double MostMemory() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

// Smaller ones first: the memory is what each needs beyond those.
void PrintFirstSteps() {
  std::printf("\nthe first step, rank 0's part\n%6s %8s | %12s %10s %10s\n", "ranks", "tensors",
              "bytes", "s", "MiB so far");
  for (const auto& [ranks, tensors] :
       {std::pair(16, 1000), std::pair(1000, 1000), std::pair(16, 10000), std::pair(1000, 10000)}) {
    const Growth growth = PlayFirstStep(ranks, tensors);
    std::printf("%6d %8d | %12.0f %10.2f %10.0f\n", ranks, tensors,
                PerStep(growth.traffic[0].bytes(), 1), growth.seconds, MostMemory());
    std::fflush(stdout);
  }
}

// Rank 0's part of a step of so many tensors, negotiated a hundred at a time by two ranks, where
// there are numbers for nine of ten: seconds. Every step most numbers go to other tensors.
double PlayEvictions(int tensors, int steps) {
  constexpr int kTogether = 100;
  Coordinator::Options options;
  options.hosts.assign(2, "host");
  options.cache_capacity = tensors / 10 * 9;
  Coordinator coordinator(std::move(options));
  const Announcement all = FirstAnnouncement(tensors);
  std::unordered_map<std::string, CacheId> numbers;
  std::unordered_map<CacheId, std::string> names;
  std::chrono::duration<double> taken(0);
  uint64_t seen = 0;
  for (int i = 0; i < (steps + 1) * tensors; i += kTogether) {
    Announcement announcement;
    announcement.seen = seen;
    for (int t = i % tensors; t < i % tensors + kTogether; ++t) {
      const Request& request = all.requests[static_cast<size_t>(t)];
      const auto number = numbers.find(request.key.name);
      if (number == numbers.end()) {
        announcement.requests.push_back(request);
      } else {
        announcement.known.push_back(number->second);
      }
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int r = 0; r < 2; ++r) EXPECT_OK(coordinator.Take(r, announcement, 0.0));
    const auto agreed = coordinator.Step(0.0);
    if (i >= tensors) taken += std::chrono::steady_clock::now() - begin;
    const Agreement& agreement = *agreed.front().second;
    seen = agreement.sequence;
    for (const Agreement::Item& item : agreement.items) {
      if (item.repeat || item.id == kNoId) continue;
      numbers[item.decision.key.name] = item.id;
      names[item.id] = item.decision.key.name;
    }
    for (const CacheId id : agreement.evicted) {
      const auto name = names.find(id);
      if (numbers[name->second] == id) numbers.erase(name->second);
      names.erase(name);
    }
  }
  return taken.count() / steps;
}

void PrintEvictions() {
  std::printf("\na step with numbers for nine of ten tensors, rank 0's part\n%8s | %10s %12s\n",
              "tensors", "s a step", "us a tensor");
  for (const int tensors : {1000, 10000, 30000, 100000}) {
    const double seconds = PlayEvictions(tensors, std::max(1, 30000 / tensors));
    std::printf("%8d | %10.4f %12.2f\n", tensors, seconds, seconds / tensors * 1e6);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace tfhvd

int main(int argc, char** argv) {
  int most = 256;
  const bool evictions = argc == 2 && std::strcmp(argv[1], "--evictions") == 0;
  if (argc == 3 && std::strcmp(argv[1], "--threads") == 0) {
    most = std::atoi(argv[2]);
  } else if (argc != 1 && !evictions) {
    most = 0;
  }
  if (most < 2) {
    std::fprintf(
        stderr,
        "Expected: growth [--threads MOST] or growth --evictions, MOST a number of ranks of 2 "
        "or more\n");
    return 2;
  }
  if (evictions) {
    tfhvd::PrintEvictions();
    return tfhvd::testing::Registry::Get().failures() == 0 ? 0 : 1;
  }
  tfhvd::PrintFirstSteps();
  tfhvd::PrintEngines(most, 0);
  tfhvd::PrintEngines(most, 8);
  tfhvd::PrintLeaders();
  tfhvd::PrintStar();
  tfhvd::PrintEvictions();
  return tfhvd::testing::Registry::Get().failures() == 0 ? 0 : 1;
}
