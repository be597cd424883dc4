// Prints what an elastic job adds to each collective of a rank, while nothing fails. From the root
// of the source tree, after `python setup.py build_core_tests`:
//
//   build/core_tests/elastic_bench
//
// A step submits so many allreduces of 1 KiB and waits for all of them, in an engine that is alone
// (so that no other rank's time is in it), by itself and below an ElasticJob that keeps what other
// ranks may need. Each line has the shortest step and the median of many, in turns.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/elastic_ranks.h"

namespace tfhvd {
namespace {

constexpr int kSteps = 600;
constexpr size_t kElements = 256;

// An engine that is alone, and the elastic job around it, which takes it for one of two.
class Lone {
 public:
  Lone() : group_(1), rank_(&group_, 0, Config()) {
    Roster roster;
    roster.members = {0, 1};
    job_ = std::make_unique<ElasticJob>(
        roster, std::shared_ptr<Engine>(std::shared_ptr<void>(), rank_.engine()), &membership_,
        nullptr, Log(LogLevel::kFatal, 0), std::chrono::seconds(2));
  }
  ~Lone() {
    job_->Stop();
    rank_.engine()->Leave("");
    (void)rank_.engine()->WaitUntilOver(60.0);
  }

  Engine* engine() { return rank_.engine(); }
  ElasticJob* job() { return job_.get(); }

 private:
  InprocGroup group_;
  Rank rank_;
  testing::FakeMembership membership_;
  std::unique_ptr<ElasticJob> job_;
};

class Step {
 public:
  explicit Step(int tensors) : in_(kElements, 1.0f), out_(static_cast<size_t>(tensors)) {
    for (int i = 0; i < tensors; ++i) {
      out_[static_cast<size_t>(i)].resize(kElements);
      Request request;
      request.key.name = "gradients/layer_" + std::to_string(i) + "/kernel";
      request.reduction.op = ReduceOp::kSum;
      request.tensors.push_back({DType::kFloat32, {static_cast<int64_t>(kElements)}});
      requests_.emplace_back(std::move(request));
    }
  }

  // Microseconds until all are done.
  double Run(const std::function<void(Entry&&)>& submit) {
    left_.store(static_cast<int>(requests_.size()));
    const auto begin = std::chrono::steady_clock::now();
    for (size_t i = 0; i < requests_.size(); ++i) {
      Entry entry;
      entry.request = requests_[i];
      entry.inputs.push_back(in_.data());
      entry.outputs.push_back(out_[i].data());
      entry.retain = [this](Retained) { return memory_; };
      entry.done = Completion([this](const Status& status) {
        if (!status.ok()) std::abort();
        left_.fetch_sub(1);
      });
      submit(std::move(entry));
    }
    while (left_.load() > 0) std::this_thread::yield();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
  }

 private:
  std::vector<float> in_;
  std::vector<std::vector<float>> out_;
  std::vector<SharedRequest> requests_;
  const std::shared_ptr<void> memory_ = std::make_shared<int>();
  std::atomic<int> left_{0};
};

void Print(const char* name, int tensors, std::vector<double> steps) {
  std::sort(steps.begin(), steps.end());
  std::printf("%-8s %4d collectives: %8.1f us, %8.1f us; of each %6.3f us\n", name, tensors,
              steps.front(), steps[steps.size() / 2], steps.front() / tensors);
}

int Main() {
  for (const int tensors : {10, 100, 500}) {
    Lone fixed;
    Lone elastic;
    Step step(tensors);
    std::vector<double> plain;
    std::vector<double> kept;
    for (int i = 0; i < kSteps; ++i) {
      plain.push_back(step.Run([&](Entry&& e) { fixed.engine()->Submit(std::move(e)); }));
      kept.push_back(step.Run([&](Entry&& e) { elastic.job()->Submit(std::move(e)); }));
    }
    Print("fixed", tensors, plain);
    Print("elastic", tensors, kept);
  }
  return 0;
}

}  // namespace
}  // namespace tfhvd

int main() { return tfhvd::Main(); }
