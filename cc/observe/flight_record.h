// FlightRecord: always on: notes of the last entries when they were submitted, agreed, executed and
// done, and whom this rank waited for, in memory that another process can read while this one is
// stopped, and after it was killed (flight_format.h).
//
// An entry has a slot of its own by its number, so that noting it is a few stores and, once a
// batch, a look at the clock; nothing waits for a reader.
//
// Any thread, but Submitted by one at a time, as Observer says.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/comm/topology.h"
#include "cc/flow/observer.h"
#include "cc/memory/memory_file.h"
#include "cc/observe/flight_format.h"

namespace tfhvd {

class FlightRecord : public Observer {
 public:
  static constexpr uint32_t kSlots =
      2048;  // 128 KiB, which stay in a cache: twice as fast as four times as many
  static constexpr uint32_t kTextBytes = 1 << 20;  // names; what does not fit has none

  explicit FlightRecord(const Topology& topology);

  // What other processes read, as a descriptor: -1 where the system has none such.
  int file() const { return memory_.file(); }

  // Notes where the program's training is: `step` steps of epoch `epoch` (from 1; 0: nowhere) are
  // done. Any thread.
  void At(int64_t epoch, int64_t step);

  // Notes that this rank's own watch runs, and can be relied on for so long. Any thread.
  void Watched(std::chrono::nanoseconds lasting);

  bool wants_ranks() const override { return false; }
  void Submitted(const Entry& entry) override;
  void RankReady(const Key&, Collective, int, bool) override {}
  void TallyOver(const Key&) override {}
  void WaitedFor(EntryId entry, int rank) override;
  void AgreedOn(const std::vector<Agreed>& together) override;
  void Begin(const std::vector<EntryId>& entries, const char* carrier, const char* call) override;
  void End(const std::vector<EntryId>& entries) override;
  void Done(EntryId entry, const Status& status) override;

  // For tests: the bytes as a reader gets them.
  const char* data() const { return memory_.data(); }

 private:
  // What a slot says of a request that was met before, in half a line of the cache.
  struct alignas(32) Known {
    std::weak_ptr<const Request> request;
    int64_t bytes = 0;
    uint32_t name = 0;
    uint16_t tensors = 0;
    Collective kind = Collective::kAllReduce;
  };
  static_assert(sizeof(Known) == 32, "a look at what is known is one miss of the cache");

  struct Phase {
    const char* carrier = nullptr;
    const char* call = nullptr;
    uint32_t text = 0;
  };

  FlightSlot* SlotOf(EntryId id) const;  // null where another entry has taken it
  const Known& KnownOf(const SharedRequest& request);
  uint32_t PhaseOf(const char* carrier, const char* call) TFHVD_EXCLUDES(mutex_);
  // Where `text` stands; 0 where there is no room. It may have a zero within.
  uint32_t Interned(std::string text) TFHVD_REQUIRES(mutex_);

  const MemoryFile memory_;
  FlightHeader* header_ = nullptr;
  FlightSlot* slots_ = nullptr;
  char* text_ = nullptr;

  // Those of addresses that fall together, the latest first; Submitted's.
  std::array<std::array<Known, 4>, 512> known_;
  // Those below phases_used_ do not change any more, and are read without the lock.
  std::array<Phase, 64> phases_;  // there are two dozen
  std::atomic<size_t> phases_used_{0};
  // When the last phase ended: what was done in it is done then. One look at the clock for all.
  std::atomic<int64_t> phase_ended_{0};

  Mutex mutex_;
  uint32_t text_used_ TFHVD_GUARDED_BY(mutex_) = 1;  // the first byte is the empty text
  std::unordered_map<std::string, uint32_t> places_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
