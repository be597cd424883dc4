// RetainedEntry: an entry that may be given to several engines, one after the other, until one of
// them has done it, or another rank's result has been copied. Its owner calls the submitter's
// `done`, once.
//
// One thread at a time, except for the callbacks of an engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/elastic/ledger.h"
#include "cc/flow/entry.h"
#include "cc/memory/block_cache.h"

namespace tfhvd {

struct RetainedEntry {
  // The functions that an engine calls for an entry, instead of the submitter's.
  struct Callbacks {
    std::function<Status(int tensor, const Shape& shape, void** output)> allocate;
    std::function<void(int tensor, const std::vector<int64_t>& first_dims)> gathers;
    std::function<void(int64_t number)> number;
    std::function<void(const Status&)> done;
  };

  // One thread makes all entries of a step and another destroys them, which is slow with a general
  // allocator. Therefore they are in blocks of this cache, which outlives them.
  struct GiveBack {
    BlockCache* blocks = nullptr;  // Not owned.
    void operator()(RetainedEntry* kept) const;
  };
  using Pointer = std::unique_ptr<RetainedEntry, GiveBack>;
  static Pointer Make(Entry&& submitted, BlockCache* blocks);

  const Request& request() const { return *entry.request; }
  // Returns whether it survives the failure of a rank: an entry of all ranks in host memory.
  bool survives() const { return survives_; }
  // Returns whether no engine has it.
  bool is_free() const { return generation < 0; }

  // Makes the entry for an engine of this generation. REQUIRES: is_free.
  Entry Give(int to_generation, Callbacks callbacks);
  // Records that it has failed in that engine with `status`, and waits for another engine.
  void TakeBack(const Status& status);

  // Returns its result, for other ranks. Call it once, when the entry is done. Its memory stays as
  // long as the result.
  Ledger::Result ResultOf();
  // Returns the result of a failure on which the ranks agree.
  Ledger::Result ResultOf(const Status& failure);
  // Completes it with the result of another rank, whose bytes are `data`.
  Status ApplyCopy(const ResultRecord& record, const char* data);

  // Updates the root of a broadcast that was submitted before the ranks were renumbered. A failed
  // root becomes kLostRoot: the broadcast fails once all members have called it.
  void RenumberRoot(const Roster& before, const Roster& roster);

  Entry entry;  // the submitter's
  int generation = -1;
  // Cancels it in the engine of this generation. The engine reads it before it takes the entry, and
  // not after the entry is over. So it may be destroyed with this object, even if another thread is
  // still within the engine's Submit.
  std::optional<Withdrawal> withdrawal;
  bool cancelled = false;
  Status why;                                         // the failure since which it waits
  std::chrono::steady_clock::time_point waits_since;  // while it is free

  std::unique_ptr<FoundTogether> found;  // null if not needed

 private:
  explicit RetainedEntry(Entry&& submitted);
  ~RetainedEntry() = default;

  const bool survives_;
  // Copies of inputs that share memory with an output; by tensor, empty for other inputs.
  std::vector<std::vector<char>> inputs_;
};

}  // namespace tfhvd
