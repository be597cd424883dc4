// Entry: one collective in this process, from the kernel that submits it to its completion. It is
// moved along the data path, never copied.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "cc/base/inline_vector.h"
#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Completion: the function that is called when a collective has ended, exactly once. If it is
// dropped before that, its destructor calls it with an error, so that no submitter waits for ever.
class Completion {
 public:
  Completion() = default;
  template <typename Function,
            typename = std::enable_if_t<std::is_invocable_v<Function, const Status&>>>
  Completion(Function function) : function_(std::move(function)) {}  // NOLINT: as a std::function
  Completion(Completion&& other) noexcept : function_(std::exchange(other.function_, nullptr)) {}
  // Replaces the present function without calling it.
  Completion& operator=(Completion&& other) noexcept {
    function_ = std::exchange(other.function_, nullptr);
    return *this;
  }
  ~Completion() {
    if (function_ == nullptr) return;  // as in every entry that was moved: makes no text
    (*this)(Status::Unavailable("the collective was dropped: its rank has run out of memory"));
  }

  // Only the first call has an effect.
  void operator()(const Status& status) {
    const auto function = std::exchange(function_, nullptr);
    if (function) function(status);
  }

 private:
  std::function<void(const Status&)> function_;
};

// Identifies an entry for Engine::Cancel. Never 0, and never used twice within an engine.
using EntryId = uint64_t;

// Withdrawal: cancels an entry that is being submitted, before the submitter has its id. The taker
// of the entry publishes the id before any other thread can find the entry; so either Ask returns
// the id, or the entry is refused. Any thread.
class Withdrawal {
 public:
  // Called by the submitter: from here on the entry is not wanted. Returns the id for Cancel; 0:
  // the entry has not been taken, and never will be.
  EntryId Ask() {
    asked_.store(true);
    return id_.load();
  }

  // Called by the taker with the entry's id; false: the entry must be refused.
  bool Take(EntryId id) {
    id_.store(id);
    return !asked_.load();
  }

 private:
  std::atomic<bool> asked_{false};
  std::atomic<EntryId> id_{0};
};

// The fields that only entries of some devices and some kinds of collectives need.
struct EntryExtras {
  // On an accelerator: the framework's stream, on which the inputs become ready and the outputs
  // will be read. The engine marks the point at which the entry was submitted.
  void* stream = nullptr;
  std::shared_ptr<void> ready;  // set by the engine
  // If set, `stream` does not wait. Instead this function receives the mark of the collective's
  // end, for Engine::Follow; called before `done` and on its thread.
  std::function<void(std::shared_ptr<void>)> finished;

  // On an accelerator, for reductions of one backward pass: its name, and its number of entries.
  // Their results are used only after all are submitted. Therefore the `done` of the first ones
  // comes with that of the last one: the framework's stream need not wait for a reduction before it
  // has computed the input of the next one.
  std::string backward_pass;
  int32_t buckets = 1;

  // alltoall: how many rows go to each rank of the process set; empty: equally many to each. Not
  // part of the request: the ranks exchange these numbers when they execute it.
  std::vector<int64_t> splits;
  // alltoall: receives how many rows came from each rank; called before `done` and on its thread.
  // May be empty.
  std::function<void(const std::vector<int64_t>&)> received_splits;

  // allgather: receives Decision::first_dims for each tensor; called on the engine's thread before
  // `allocate`. May be empty.
  std::function<void(int tensor, const std::vector<int64_t>& first_dims)> gathers;

  // join, add_process_set, remove_process_set: receives Decision::number; called like
  // received_splits.
  std::function<void(int64_t)> number;
};

// The status of an entry that is refused because it was withdrawn.
inline Status WasWithdrawn() {
  return Status::Cancelled("The collective was cancelled before it began.");
}

// The memory of an entry that must outlive it.
enum class Retained { kAll, kOutputs };

struct Entry {
  SharedRequest request;

  // Not named by the user: such entries of one key may be in flight together, and complete in the
  // order of submission. Two named entries of one key in flight are an error.
  bool anonymous = false;

  // Not part of the program's steps: completes in the middle of any step.
  bool apart = false;

  // One pointer per tensor of the request, to memory that the submitter owns until `done` returns.
  // output: null if it is allocated late (allgather, reducescatter, alltoall); may equal the input.
  // A broadcast reads its input only at the root.
  InlineVector<const void*, 1> inputs;
  InlineVector<void*, 1> outputs;

  // This rank has joined (hvd.join) and did not submit the entry: it contributes zeros and receives
  // nothing. Inputs and outputs are null.
  bool placeholder = false;

  // Allocates output `tensor` when its shape is known; called before `done`, on the same thread.
  // Must not wait: returns kUnavailable if there is no memory. On an accelerator it may then be
  // called again.
  std::function<Status(int tensor, const Shape& shape, void** output)> allocate;

  // Returns an object that keeps the memory alive. Called before `done`, on the same thread: with
  // kAll if a failed call may touch the memory for a while longer, with kOutputs if other ranks may
  // need a result. May be empty: then `done` of a failed entry comes only after the engine's last
  // call of a communicator, and results are copied.
  std::function<std::shared_ptr<void>(Retained)> retain;

  // Called exactly once: on the host when the outputs are there; on an accelerator when `stream`
  // waits for them. Called on the engine's thread, or on a submitting thread: for its own entry if
  // the engine refuses it, for other entries if that thread runs the stages.
  Completion done;

  EntryId id = 0;  // set by the engine

  // Not owned; must live until the entry is done, or the engine is over. Null: the entry can only
  // be cancelled by its id.
  Withdrawal* withdrawal = nullptr;

  // Separate, because most entries have none, and every entry is moved several times.
  const EntryExtras& extras() const {
    static const EntryExtras kNone;
    return extras_ == nullptr ? kNone : *extras_;
  }
  EntryExtras* EditExtras() {
    if (extras_ == nullptr) extras_ = std::make_unique<EntryExtras>();
    return extras_.get();
  }

 private:
  std::unique_ptr<EntryExtras> extras_;
};

// Sorts entries of one engine by their order of submission.
inline void SortById(std::vector<Entry>* entries) {
  std::sort(entries->begin(), entries->end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
}

}  // namespace tfhvd
