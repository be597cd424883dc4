// TimedBlock: a block on its way through shared memory: how its rank writes it, and how long
// writing it and reading the others' takes, for the StoreChoice of its kind. One thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "cc/backends/shm/store_choice.h"
#include "cc/numeric/reduction.h"

namespace tfhvd {

class TimedBlock {
 public:
  TimedBlock() = default;
  // `choice` must outlive this object; End reports the times to it.
  TimedBlock(StoreChoice* choice, int64_t bytes)
      : choice_(choice), bytes_(bytes), block_(choice->Next(bytes)) {}
  // A block that is written as `stores` says, without reports.
  explicit TimedBlock(StoreIn stores) { block_.stores = stores; }

  StoreIn stores() const { return block_.stores; }

  // Measures the writing or reading of a rank during its lifetime; measures nothing if the block
  // does not count.
  class Work {
   public:
    explicit Work(TimedBlock* block) : block_(*block) {
      if (block_.block_.counts) begin_ = Clock::now();
    }
    ~Work() {
      if (!block_.block_.counts) return;
      block_.seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count();
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    using Clock = std::chrono::steady_clock;
    TimedBlock& block_;
    Clock::time_point begin_;
  };

  void End() {
    if (block_.counts) choice_->Took(block_.stores, bytes_, seconds_);
  }

 private:
  StoreChoice* choice_ = nullptr;  // Not owned.
  int64_t bytes_ = 0;
  StoreChoice::Block block_;
  double seconds_ = 0.0;
};

}  // namespace tfhvd
