// Entry: one collective in this process, from the kernel that submits it to its completion. Moved
// along the data path, never copied.
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
// dropped before that, its destructor calls it with an error, so that nobody waits for ever.
class Completion {
 public:
  Completion() = default;
  template <typename Function,
            typename = std::enable_if_t<std::is_invocable_v<Function, const Status&>>>
  Completion(Function function) : function_(std::move(function)) {}  // NOLINT: as a std::function
  Completion(Completion&& other) noexcept : function_(std::exchange(other.function_, nullptr)) {}
  // The function that it held before is replaced, and not called.
  Completion& operator=(Completion&& other) noexcept {
    function_ = std::exchange(other.function_, nullptr);
    return *this;
  }
  ~Completion() {
    if (function_ == nullptr) return;  // as of every entry that has been moved: no text for it
    (*this)(Status::Unavailable("the collective was dropped: its rank has run out of memory"));
  }

  // The first call counts.
  void operator()(const Status& status) {
    const auto function = std::exchange(function_, nullptr);
    if (function) function(status);
  }

 private:
  std::function<void(const Status&)> function_;
};

// Names an entry to Engine::Cancel. Never 0, and never used twice within an engine.
using EntryId = uint64_t;

// Withdrawal: how an entry is cancelled from the moment on at which it is submitted, and before the
// submitter has its id. Whoever takes the entry shows the id before anybody can find the entry
// there; so either Ask has the id, or the entry is refused. Any thread.
class Withdrawal {
 public:
  // By the submitter: from here on the entry is not wanted. The id to be given to Cancel; 0: nobody
  // has taken the entry, and nobody will.
  EntryId Ask() {
    asked_.store(true);
    return id_.load();
  }

  // By who takes the entry as `id`; false: it is to be refused.
  bool Take(EntryId id) {
    id_.store(id);
    return !asked_.load();
  }

 private:
  std::atomic<bool> asked_{false};
  std::atomic<EntryId> id_{0};
};

// What the entries of some devices and of some kinds of collectives have besides.
struct EntryExtras {
  // On an accelerator: the framework's stream, on which the inputs become ready and the outputs
  // will be read. The engine marks the point at which the entry was submitted.
  void* stream = nullptr;
  std::shared_ptr<void> ready;  // set by the engine
  // Where it is set, `stream` is not made to wait: this is told the mark of the collective's end
  // instead, before `done` and on its thread, for Engine::Follow.
  std::function<void(std::shared_ptr<void>)> finished;

  // On an accelerator, reductions of one backward pass: its name, and how many entries it has.
  // Nobody uses the result of one before all are submitted. So the first ones' `done` comes with
  // the last one's: the framework's stream need not wait for a reduction before it has computed
  // what the next one takes.
  std::string backward_pass;
  int32_t buckets = 1;

  // alltoall: how many rows go to each rank of the process set; empty: as many to each. Not part of
  // the request: the ranks tell each other when they execute it.
  std::vector<int64_t> splits;
  // alltoall: told how many rows came from each rank, before `done` and on its thread. May be
  // empty.
  std::function<void(const std::vector<int64_t>&)> received_splits;

  // allgather: told of each tensor what Decision::first_dims says of it, on the engine's thread
  // before `allocate`. May be empty.
  std::function<void(int tensor, const std::vector<int64_t>& first_dims)> gathers;

  // join, add_process_set, remove_process_set: told Decision::number, as received_splits is.
  std::function<void(int64_t)> number;
};

// What `done` is told of an entry that is refused because it has been withdrawn.
inline Status WasWithdrawn() {
  return Status::Cancelled("The collective was cancelled before it began.");
}

// Which memory of an entry is to outlive it.
enum class Retained { kAll, kOutputs };

struct Entry {
  SharedRequest request;

  // Unnamed by the user: such entries of one key may be in flight together and take their turn in
  // the order of submission. Two named ones at once are an error.
  bool anonymous = false;

  // Not of the program's steps: it is done in the middle of any of them.
  bool apart = false;

  // One per tensor of the request, owned by the submitter until `done` returns.
  // output: null where it is allocated late (allgather, reducescatter, alltoall); may equal the
  // input. A broadcast that is not at its root reads no input.
  InlineVector<const void*, 1> inputs;
  InlineVector<void*, 1> outputs;

  // This rank has joined and did not submit it: it brings zeros, and gets nothing. Inputs and
  // outputs are null.
  bool placeholder = false;

  // Gives the memory of output `tensor` once its shape is known; called before `done`, on the same
  // thread. Must not wait: kUnavailable where there is no memory, and on an accelerator it may be
  // called again.
  std::function<Status(int tensor, const Shape& shape, void** output)> allocate;

  // Gives what keeps the memory for as long as it lives. Called before `done`, on the same thread:
  // kAll where a call that failed may touch it for a while longer, kOutputs where other ranks may
  // need a result. May be empty: then `done` comes only when the engine calls no communicator any
  // more, and results are copied.
  std::function<std::shared_ptr<void>(Retained)> retain;

  // Called exactly once: on the host when the outputs are there; on an accelerator when `stream`
  // has been made to wait for them. On the engine's thread, or on one that submits: this entry
  // where the engine refuses it, another where it runs the stages.
  Completion done;

  EntryId id = 0;  // set by the engine

  // Not owned; lives until the entry is done, or the engine is over. Null: the entry is cancelled
  // by its id alone.
  Withdrawal* withdrawal = nullptr;

  // Apart, because most entries have none and all of them are moved several times.
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

// Puts entries of one engine into the order of submission.
inline void SortById(std::vector<Entry>* entries) {
  std::sort(entries->begin(), entries->end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
}

}  // namespace tfhvd
