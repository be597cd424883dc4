// KeptEntry: an entry that may be given to several engines, one after the other, until one of them
// has done it, or another rank's result has been copied. The submitter's `done` is called by who
// has the KeptEntry, once.
//
// One thread at a time, but for what an engine calls back.
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

struct KeptEntry {
  // What an engine calls of an entry that it was given, instead of the submitter's own.
  struct Callbacks {
    std::function<Status(int tensor, const Shape& shape, void** output)> allocate;
    std::function<void(int tensor, const std::vector<int64_t>& first_dims)> gathers;
    std::function<void(int64_t number)> number;
    std::function<void(const Status&)> done;
  };

  // All of a step are made by one thread and go by another, which an allocator for everything is
  // slow at: so they lie in blocks of this cache, which outlives them.
  struct GiveBack {
    BlockCache* blocks = nullptr;  // Not owned.
    void operator()(KeptEntry* kept) const;
  };
  using Pointer = std::unique_ptr<KeptEntry, GiveBack>;
  static Pointer Make(Entry&& submitted, BlockCache* blocks);

  const Request& request() const { return *entry.request; }
  // Whether it goes on where a rank is lost: one of all ranks in host memory.
  bool survives() const { return survives_; }
  // Whether no engine has it.
  bool is_free() const { return generation < 0; }

  // Makes what an engine of this generation gets. REQUIRES: is_free.
  Entry Give(int to_generation, Callbacks callbacks);
  // It has failed there with this, and waits for another one.
  void TakeBack(const Status& status);

  // Once it is done, and once: its result, for others. Its memory stays until that is gone.
  Ledger::Result ResultOf();
  // The same for a failure that the ranks have agreed on.
  Ledger::Result ResultOf(const Status& failure);
  // Does it by the result of another rank, whose bytes are `data`.
  Status TakeCopy(const Outcome& outcome, const char* data);

  // Ranks are numbered anew: so is the root of a broadcast that was submitted before. Where that is
  // lost, it is kLostRoot: the broadcast fails once all members have come to it.
  void RenumberRoot(const Roster& before, const Roster& roster);

  Entry entry;  // the submitter's
  int generation = -1;
  // By which it is cancelled in the engine of this generation. That looks at it before it has the
  // entry, and not once it is over: so it may go with this object, though another thread is still
  // on its way there.
  std::optional<Withdrawal> withdrawal;
  bool cancelled = false;
  Status why;                                         // it has failed with this, since then
  std::chrono::steady_clock::time_point waits_since;  // while it is free

  std::unique_ptr<FoundTogether> found;  // null where it needs none

 private:
  explicit KeptEntry(Entry&& submitted);
  ~KeptEntry() = default;

  const bool survives_;
  // Copies of inputs that share memory with an output; by tensor, where there is one.
  std::vector<std::vector<char>> inputs_;
};

}  // namespace tfhvd
