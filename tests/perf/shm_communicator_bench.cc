// Prints how long an allreduce of two ranks of one host takes through shared memory, beside a
// memcpy of as many bytes, and beside one into memory fresh from the system. The ranks are threads.
// From the root of the source tree, after `python setup.py build_core_tests` (two lines to type):
//
//   g++ -std=c++17 -O2 -pthread -I. tests/perf/shm_communicator_bench.cc
//     build/core_tests/libtfhvd_core.so -Wl,-rpath,$PWD/build/core_tests -o build/shm_bench
//   build/shm_bench
//
// Medians of rank 0, in microseconds; both ranks copy at the same time.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "cc/backends/shm/shm_communicator.h"

namespace tfhvd {
namespace {

double Median(Communicator* comm, int repetitions, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    if (!comm->Barrier().ok()) return -1.0;
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void CopyToFreshMemory(const void* from, size_t bytes) {
  void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return;
  std::memcpy(fresh, from, bytes);
  munmap(fresh, bytes);
}

void Measure(Communicator* comm) {
  for (const int64_t bytes : {4L, 1L << 10, 64L << 10, 1L << 20, 8L << 20, 64L << 20}) {
    const int64_t count = bytes / 4;
    std::vector<float> in(static_cast<size_t>(count), 1.0f);
    std::vector<float> out(static_cast<size_t>(count), 2.0f);
    const auto size = static_cast<size_t>(bytes);
    const int repetitions = bytes > (1 << 20) ? 15 : 300;
    const double copy =
        Median(comm, repetitions, [&] { std::memcpy(out.data(), in.data(), size); });
    const double fresh = Median(comm, repetitions, [&] { CopyToFreshMemory(in.data(), size); });
    const auto reduce = [&](const float* from) {
      return Median(comm, repetitions, [&] {
        (void)comm->AllReduce(from, out.data(), count, DType::kFloat32, Reduction());
      });
    };
    const double elsewhere = reduce(in.data());
    const double in_place = reduce(out.data());
    if (comm->rank() != 0) continue;
    std::printf("%10lld %12.1f %12.1f %12.1f %12.1f\n", static_cast<long long>(bytes), copy, fresh,
                elsewhere, in_place);
  }
}

int Main() {
  constexpr int kRanks = 2;
  const ShmOptions options;
  auto memory = std::make_shared<SharedMemory>();
  const Status status =
      SharedMemory::Create(ShmCommunicator::SizeFor(kRanks, options), memory.get());
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  std::printf("%10s %12s %12s %12s %12s\n", "bytes", "memcpy", "fresh", "allreduce", "in place");
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      ShmCommunicator comm(memory, r, kRanks, {}, options);
      Measure(&comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace
}  // namespace tfhvd

int main() { return tfhvd::Main(); }
