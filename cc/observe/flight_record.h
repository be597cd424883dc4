// FlightRecord: always on: for the last entries, the times of submission, agreement, execution and
// completion, and the ranks that this rank waited for; in memory that another process can read
// while this process is stopped, or after it was killed (flight_format.h).
//
// Each entry has a slot, determined by its number, so that recording it takes a few stores and,
// once for each batch, reading the clock. Nothing waits for a reader.
//
// Any thread; Submitted by one thread at a time, as Observer requires.
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
  static constexpr uint32_t kTextBytes = 1 << 20;  // for names; one without space is left out

  explicit FlightRecord(const Topology& topology);

  // Returns the descriptor that other processes read: -1 if the system has no such memory.
  int file() const { return memory_.file(); }

  // Records the position of the program's training: `step` steps of epoch `epoch` (from 1; 0: none)
  // are done. Any thread.
  void At(int64_t epoch, int64_t step);

  // Records that this rank's own hang monitor runs, and is reliable for so long. Any thread.
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

  // For tests: the bytes that a reader gets.
  const char* data() const { return memory_.data(); }

 private:
  // The part of a slot that depends on a repeated request only, in half a cache line.
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

  FlightSlot* SlotOf(EntryId id) const;  // null if another entry has taken the slot
  const Known& KnownOf(const SharedRequest& request);
  uint32_t PhaseOf(const char* carrier, const char* call) TFHVD_EXCLUDES(mutex_);
  // Returns the offset of `text`; 0 if there is no space. The text may contain a zero.
  uint32_t Interned(std::string text) TFHVD_REQUIRES(mutex_);

  const MemoryFile memory_;
  FlightHeader* header_ = nullptr;
  FlightSlot* slots_ = nullptr;
  char* text_ = nullptr;

  // Requests whose addresses share a hash, the latest first; used by Submitted.
  std::array<std::array<Known, 4>, 512> known_;
  // Elements below phases_used_ do not change, and are read without the lock.
  std::array<Phase, 64> phases_;  // there are two dozen
  std::atomic<size_t> phases_used_{0};
  // The end of the last phase: entries of that phase are done then. One reading of the clock for
  // all of them.
  std::atomic<int64_t> phase_ended_{0};

  Mutex mutex_;
  uint32_t text_used_ TFHVD_GUARDED_BY(mutex_) = 1;  // the first byte is the empty text
  std::unordered_map<std::string, uint32_t> places_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
