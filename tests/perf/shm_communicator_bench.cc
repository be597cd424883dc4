// Prints how long an allreduce of two ranks of one host takes through shared memory, beside a
// memcpy of as many bytes, and beside one into memory fresh from the system. The ranks are threads.
// From the root of the source tree, after `python setup.py build_core_tests`:
//
//   build/core_tests/shm_communicator_bench [--slots | --stores | --results | --floor]
//
// Medians of rank 0, in microseconds; both ranks copy at the same time. With --slots: an allreduce
// of 64 MiB with the blocks and the stores that slots could be written with, in turns. With
// --stores: how far the two cores' caches are from each other, as the round trip of a line between
// them, and allreduces of all sizes with either kind of stores, in turns. With
// --results: results written through the caches and past them, and the time to read them after.
// With --floor: beside an allreduce of 64 MiB what two ranks would need that saw all of each
// other's memory.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/shm/shm_communicator.h"
#include "cc/numeric/arithmetic.h"
#include "cc/numeric/cpu.h"

namespace tfhvd {
namespace {

constexpr int kRanks = 2;

// Values that begin on a line of the caches, as TensorFlow's tensors do.
class Floats {
 public:
  Floats(int64_t count, float value) : count_(count), values_(count + kLine, value) {}
  float* data() {
    const auto address = reinterpret_cast<uintptr_t>(values_.data());
    return values_.data() + (kLine - address / sizeof(float) % kLine) % kLine;
  }
  int64_t count() const { return count_; }
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(float); }

 private:
  static constexpr size_t kLine = 64 / sizeof(float);
  const int64_t count_;
  std::vector<float> values_;
};

double MedianOf(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double Median(Communicator* comm, int repetitions, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    if (!comm->Barrier().ok()) return -1.0;
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    times.push_back(took.count());
  }
  return MedianOf(std::move(times));
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
    Floats in(count, 1.0f);
    Floats out(count, 2.0f);
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

// Rank 0's time of one allreduce of `count` floats.
double Once(Communicator* comm, const float* in, float* out, int64_t count) {
  return Median(comm, 1,
                [&] { (void)comm->AllReduce(in, out, count, DType::kFloat32, Reduction()); });
}

// `comms`: of one rank, by variant, equally many on both.
void MeasureSlots(const std::vector<std::unique_ptr<ShmCommunicator>>& comms,
                  std::vector<std::vector<double>>* elsewhere,
                  std::vector<std::vector<double>>* in_place) {
  constexpr int64_t kCount = 16 << 20;
  constexpr int kRounds = 21;
  Floats in(kCount, 1.0f);
  Floats out(kCount, 0.0f);
  elsewhere->resize(comms.size());
  in_place->resize(comms.size());
  for (int i = 0; i < kRounds; ++i) {
    for (size_t v = 0; v < comms.size(); ++v) {
      (*elsewhere)[v].push_back(Once(comms[v].get(), in.data(), out.data(), kCount));
      (*in_place)[v].push_back(Once(comms[v].get(), out.data(), out.data(), kCount));
    }
  }
}

// Runs `body(rank)` on two threads.
void OnTwo(const std::function<void(int)>& body) {
  std::thread other([&] { body(1); });
  body(0);
  other.join();
}

std::shared_ptr<SharedMemory> MemoryFor(const ShmOptions& options) {
  auto memory = std::make_shared<SharedMemory>();
  const int64_t bytes = ShmCommunicator::SizeFor(kRanks, options);
  Status status = SharedMemory::Create(bytes, memory.get());
  if (status.ok()) status = memory->Reserve({0, bytes});
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
  return memory;
}

void CompareSlots() {
  std::vector<ShmOptions> variants;
  std::vector<std::shared_ptr<SharedMemory>> memories;
  for (const int64_t block : {32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10}) {
    for (const bool past_caches : {false, true}) {
      ShmOptions options;
      options.block_bytes = options.slot_bytes = block;
      options.stores = past_caches ? StoreIn::kMemory : StoreIn::kCaches;
      variants.push_back(options);
      memories.push_back(MemoryFor(options));
    }
  }
  OnTwo([&](int rank) {
    std::vector<std::unique_ptr<ShmCommunicator>> comms;
    for (size_t v = 0; v < variants.size(); ++v) {
      comms.push_back(std::make_unique<ShmCommunicator>(memories[v], rank, kRanks, variants[v]));
    }
    std::vector<std::vector<double>> elsewhere, in_place;
    MeasureSlots(comms, &elsewhere, &in_place);
    if (rank != 0) return;
    std::printf("%10s %14s %12s %12s\n", "block", "stores", "allreduce", "in place");
    for (size_t v = 0; v < variants.size(); ++v) {
      std::printf("%10lld %14s %12.0f %12.0f\n", static_cast<long long>(variants[v].block_bytes),
                  variants[v].stores == StoreIn::kMemory ? "past caches" : "ordinary",
                  MedianOf(elsewhere[v]), MedianOf(in_place[v]));
    }
  });
}

// A line that two cores write in turns: nanoseconds there and back.
double RoundTrip() {
  constexpr int kTimes = 100000;
  alignas(64) std::atomic<int> line{0};
  double nanoseconds = 0.0;
  OnTwo([&](int rank) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) {
      while (line.load(std::memory_order_acquire) != 2 * i + rank) {
      }
      line.store(2 * i + rank + 1, std::memory_order_release);
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    if (rank == 0) nanoseconds = took.count() / kTimes;
  });
  return nanoseconds;
}

void CompareStores() {
  std::vector<ShmOptions> variants(3);
  variants[0].stores = StoreIn::kCaches;
  variants[1].stores = StoreIn::kMemory;
  std::vector<std::shared_ptr<SharedMemory>> memories;
  for (const ShmOptions& options : variants) memories.push_back(MemoryFor(options));
  std::printf("a line between the cores and back: %.0f ns\n", RoundTrip());
  std::printf("%10s%34s%34s%34s\n", "bytes", "ordinary, in place", "past caches, in place",
              "as is found out, in place");
  OnTwo([&](int rank) {
    std::vector<std::unique_ptr<ShmCommunicator>> comms;
    for (size_t v = 0; v < variants.size(); ++v) {
      comms.push_back(std::make_unique<ShmCommunicator>(memories[v], rank, kRanks, variants[v]));
    }
    for (const int64_t bytes : {1L << 10, 4L << 10, 8L << 10, 16L << 10, 64L << 10, 256L << 10,
                                1L << 20, 8L << 20, 64L << 20}) {
      Floats in(bytes / 4, 1.0f);
      Floats out(bytes / 4, 0.0f);
      std::vector<double> elsewhere[3], in_place[3];
      for (int i = 0; i < (bytes > (8 << 20) ? 11 : 101); ++i) {
        for (size_t v = 0; v < variants.size(); ++v) {
          elsewhere[v].push_back(Once(comms[v].get(), in.data(), out.data(), in.count()));
          in_place[v].push_back(Once(comms[v].get(), out.data(), out.data(), in.count()));
        }
      }
      if (rank != 0) continue;
      std::printf("%10lld", static_cast<long long>(bytes));
      for (size_t v = 0; v < variants.size(); ++v) {
        std::printf("%17.1f%17.1f", MedianOf(elsewhere[v]), MedianOf(in_place[v]));
      }
      std::printf("\n");
    }
  });
  std::printf("a line between the cores and back: %.0f ns\n", RoundTrip());
}

// Rank 0's times of an allreduce and of reading its result, while other memory is used between.
struct ThenRead {
  std::vector<double> reduce, read;
};

// Reads all of it, for a byte that no value has.
void ReadAll(Floats* values) {
  if (std::memchr(values->data(), 0xee, values->bytes()) != nullptr) std::abort();
}

void MeasureResults(const std::vector<std::unique_ptr<ShmCommunicator>>& comms, int64_t bytes,
                    std::vector<ThenRead>* times) {
  Floats in(bytes / 4, 1.0f);
  Floats out(bytes / 4, 0.0f);
  Floats others((96 << 20) / 4, 1.0f);
  times->resize(comms.size());
  for (int i = 0; i < 11; ++i) {
    for (size_t v = 0; v < comms.size(); ++v) {
      ReadAll(&others);
      (*times)[v].reduce.push_back(Once(comms[v].get(), in.data(), out.data(), in.count()));
      (*times)[v].read.push_back(Median(comms[v].get(), 1, [&] { ReadAll(&out); }));
    }
  }
}

void CompareResults() {
  std::vector<ShmOptions> variants(2);
  variants[0].result_past_caches = int64_t{1} << 40;
  variants[1].result_past_caches = 0;
  std::vector<std::shared_ptr<SharedMemory>> memories;
  for (const ShmOptions& options : variants) memories.push_back(MemoryFor(options));
  std::printf("%10s %12s %12s %12s %12s\n", "bytes", "caches", "then read", "past them",
              "then read");
  OnTwo([&](int rank) {
    std::vector<std::unique_ptr<ShmCommunicator>> comms;
    for (size_t v = 0; v < variants.size(); ++v) {
      comms.push_back(std::make_unique<ShmCommunicator>(memories[v], rank, kRanks, variants[v]));
    }
    for (const int64_t bytes : {256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 32 << 20}) {
      std::vector<ThenRead> times;
      MeasureResults(comms, bytes, &times);
      if (rank != 0) continue;
      std::printf("%10lld %12.0f %12.0f %12.0f %12.0f\n", static_cast<long long>(bytes),
                  MedianOf(times[0].reduce), MedianOf(times[0].read), MedianOf(times[1].reduce),
                  MedianOf(times[1].read));
    }
  });
}

// Each rank reduces every other block, for both.
void ReduceForBoth(std::vector<Floats>* in, std::vector<Floats>* out, int rank) {
  constexpr int64_t kBlock = (16 << 10) / sizeof(float);
  Floats near(kBlock, 0.0f);
  for (int64_t at = rank * kBlock; at < (*in)[0].count(); at += kRanks * kBlock) {
    const void* from[] = {(*in)[0].data() + at, (*in)[1].data() + at};
    ReduceRanks(near.data(), from, kRanks, kBlock, DType::kFloat32, Reduction());
    for (Floats& o : *out) StreamCopy(o.data() + at, near.data(), kBlock * sizeof(float));
  }
}

void CompareFloor() {
  constexpr int64_t kCount = 16 << 20;
  const ShmOptions options;
  const std::shared_ptr<SharedMemory> memory = MemoryFor(options);
  std::vector<Floats> in(kRanks, Floats(kCount, 1.0f));
  std::vector<Floats> out(kRanks, Floats(kCount, 0.0f));
  OnTwo([&](int rank) {
    ShmCommunicator comm(memory, rank, kRanks, options);
    const auto me = static_cast<size_t>(rank);
    std::vector<double> copy, reduce, both;
    for (int i = 0; i < 21; ++i) {
      copy.push_back(
          Median(&comm, 1, [&] { std::memcpy(out[me].data(), in[me].data(), in[me].bytes()); }));
      reduce.push_back(Once(&comm, in[me].data(), out[me].data(), kCount));
      both.push_back(Median(&comm, 1, [&] {
        ReduceForBoth(&in, &out, rank);
        (void)comm.Barrier();
      }));
    }
    if (rank != 0) return;
    std::printf("%12s %12s %12s\n%12.0f %12.0f %12.0f\n", "memcpy", "allreduce", "all seen",
                MedianOf(copy), MedianOf(reduce), MedianOf(both));
  });
}

void CompareSizes() {
  const ShmOptions options;
  const std::shared_ptr<SharedMemory> memory = MemoryFor(options);
  std::printf("%10s %12s %12s %12s %12s\n", "bytes", "memcpy", "fresh", "allreduce", "in place");
  OnTwo([&](int rank) {
    ShmCommunicator comm(memory, rank, kRanks, options);
    Measure(&comm);
  });
}

}  // namespace
}  // namespace tfhvd

int main(int argc, char** argv) {
  if (argc == 1) {
    tfhvd::CompareSizes();
  } else if (argc == 2 && std::strcmp(argv[1], "--slots") == 0) {
    tfhvd::CompareSlots();
  } else if (argc == 2 && std::strcmp(argv[1], "--stores") == 0) {
    tfhvd::CompareStores();
  } else if (argc == 2 && std::strcmp(argv[1], "--results") == 0) {
    tfhvd::CompareResults();
  } else if (argc == 2 && std::strcmp(argv[1], "--floor") == 0) {
    tfhvd::CompareFloor();
  } else {
    std::fprintf(stderr,
                 "Expected: shm_communicator_bench [--slots | --stores | --results | --floor]\n");
    return 2;
  }
  return 0;
}
