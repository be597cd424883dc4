// Metrics: always on: counts an engine's work (flow/metrics.h). An event is a few additions to
// counters with a single writer each, so no event needs an atomic operation on a shared word.
//
// One thread at a time calls Submitted, the thread that runs the engine makes the other events, and
// any thread calls `snapshot`. A snapshot is no single moment: its counters may differ by events in
// between.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cc/flow/metrics.h"
#include "cc/flow/observer.h"

namespace tfhvd {

class Metrics : public Observer {
 public:
  // `size`: the number of ranks.
  explicit Metrics(int size) : waited_(static_cast<size_t>(size)) { on_.store(true); }

  EngineMetrics snapshot() const;

  bool wants_ranks() const override { return false; }
  void Submitted(const Entry&) override { submitted_.Add(1); }
  void RankReady(const Key&, Collective, int, bool) override {}
  void TallyOver(const Key&) override {}
  void WaitedFor(EntryId, int) override {}  // Waited tells the duration
  void AgreedOn(const std::vector<Agreed>& together) override;
  void Begin(const std::vector<EntryId>&, const char*, const char*) override {}
  void End(const std::vector<EntryId>&) override {}
  void Done(EntryId entry, const Status& status) override;
  void Announced(bool known) override { (known ? cache_hits_ : cache_misses_).Add(1); }
  void Carries(const Plan& plan) override;
  void StepLocked() override { locked_steps_.Add(1); }
  void BucketRuns() override { locked_rounds_.Add(1); }
  void StepUnlocked(UnlockReason why) override { unlocked_[static_cast<size_t>(why)].Add(1); }
  void RunsInline() override { inline_runs_.Add(1); }
  void Waited(int rank, double seconds) override;

 private:
  // Written by one thread at a time, read by any.
  template <typename Number>
  class Counter {
   public:
    void Add(Number n) {
      value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    Number value() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<Number> value_{0};
  };
  using Count = Counter<int64_t>;

  Count submitted_;
  // On other cache lines than those that submitting threads write.
  alignas(64) Count completed_;
  Count failed_;
  Count tensors_;
  Count bytes_;
  Count calls_;
  Count fused_tensors_;
  Count rounds_;
  Count locked_rounds_;
  Count locked_steps_;
  std::array<Count, kUnlockReasons> unlocked_;
  Count inline_runs_;
  Count cache_hits_;
  Count cache_misses_;
  std::vector<Counter<double>> waited_;  // by rank
  Counter<double> waited_for_unknown_;
};

}  // namespace tfhvd
