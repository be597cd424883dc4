// Prints what the flight record costs, a note of it and a step. From the root of the source tree,
// after `python setup.py build_core_tests`:
//
//   build/core_tests/flight_record_bench
//
// A step submits, agrees on, executes and ends so many collectives, "alone", each in a call of its
// own, or "together", in one bucket of a locked step: five notes a collective. Before each part of
// a step, "cold" has had the caches filled with something else, as an engine and TensorFlow do to
// some degree; "warm" has not. Medians. The last column is how long a step must be for the cold
// notes to be 0.3% of it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/comm/topology.h"
#include "cc/observe/flight_record.h"

namespace tfhvd {
namespace {

constexpr int kSteps = 401;
constexpr int kNotes = 5;  // of a collective: Submitted, AgreedOn, Begin, End, Done
constexpr double kShare = 0.003;

class Caches {
 public:
  // Reads and writes more than a second-level cache holds.
  void Fill() {
    for (size_t i = 0; i < bytes_.size(); i += 64) bytes_[i] = static_cast<char>(bytes_[i] + 1);
  }

 private:
  std::vector<char> bytes_ = std::vector<char>(size_t{8} << 20);
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Seconds(const std::function<void()>& part) {
  const auto begin = std::chrono::steady_clock::now();
  part();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// So many collectives, by call.
std::vector<std::vector<Agreed>> Calls(int collectives, bool together) {
  std::vector<std::vector<Agreed>> calls;
  for (int i = 0; i < collectives; ++i) {
    if (i == 0 || !together) calls.emplace_back();
    Request* const request = calls.back().emplace_back().entry.request.Edit();
    request->key.name = "gradients/layer_" + std::to_string(i) + "/kernel";
    request->origin = "/home/ann/train.py:42 in train_step";
  }
  return calls;
}

// Seconds that the notes of a step take.
double StepOf(int collectives, bool together, Caches* caches) {
  FlightRecord record(MakeTopology(0, {"a", "a"}));
  std::vector<std::vector<Agreed>> calls = Calls(collectives, together);
  EntryId last = 0;
  const std::vector<std::function<void(std::vector<Agreed>*)>> parts = {
      [&](std::vector<Agreed>* call) {
        for (Agreed& agreed : *call) {
          agreed.entry.id = ++last;
          record.Submitted(agreed.entry);
        }
      },
      [&](std::vector<Agreed>* call) { record.AgreedOn(*call); },
      [&](std::vector<Agreed>* call) {
        std::vector<EntryId> ids;
        for (const Agreed& agreed : *call) ids.push_back(agreed.entry.id);
        record.Begin(ids, "shm", "_ALLREDUCE");
        record.End(ids);
        for (const EntryId id : ids) record.Done(id, Status());
      }};
  std::vector<double> steps;
  for (int step = 0; step < kSteps; ++step) {
    double seconds = 0;
    for (const auto& part : parts) {
      if (caches != nullptr) caches->Fill();
      seconds += Seconds([&] {
        for (std::vector<Agreed>& call : calls) part(&call);
      });
    }
    steps.push_back(seconds);
  }
  return Median(std::move(steps));
}

void Print() {
  Caches caches;
  std::printf("%20s | %9s %9s | %9s %9s | %s\n", "collectives", "warm: ns", "us", "cold: ns", "us",
              "0.3% of a step of");
  for (const bool together : {false, true}) {
    for (const int count : {1, 10, 100, 500}) {
      if (together && count == 1) continue;
      const double warm = StepOf(count, together, nullptr);
      const double cold = StepOf(count, together, &caches);
      const double notes = static_cast<double>(kNotes) * count;
      std::printf("%11d %8s | %9.0f %9.2f | %9.0f %9.2f | %.1f ms\n", count,
                  together ? "together" : "alone", 1e9 * warm / notes, 1e6 * warm,
                  1e9 * cold / notes, 1e6 * cold, 1e3 * cold / kShare);
    }
  }
}

}  // namespace
}  // namespace tfhvd

int main() { tfhvd::Print(); }
