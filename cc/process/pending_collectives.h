// PendingCollectives: collectives of compiled functions. A compiled function starts a collective in
// one call, which returns a number, and waits for many collectives, by their numbers, in a later
// call.
//
// A run is one execution of a compiled function, or of the body of a loop or branch in it. If one
// of its collectives fails, the execution ends and its memory is freed, so no collective of it may
// still run. XLA does not say which runs belong to one execution. Therefore the failure of one run
// takes back the unfinished collectives of every run, and these runs start no more. When Finish
// fails, it waits for all of them.
//
// A result must have the shape that the compiled function expects, or the collective fails. Ranks
// that have joined (hvd.join) contribute rows of zeros to an allgather, as they contribute zeros to
// an allreduce.
//
// On a GPU, a collective is over as soon as it is enqueued on our stream. Finish makes the given
// stream wait for it, and does not wait for the GPU.
//
// All methods may be called from any thread. Start waits no longer than Engine::Submit. Finish
// waits until the collectives are over, so it must not be called on an engine's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"

namespace tfhvd {

class PendingCollectives {
 public:
  using Id = int64_t;  // above 0
  using Run = int64_t;

  PendingCollectives() = default;
  PendingCollectives(const PendingCollectives&) = delete;
  PendingCollectives& operator=(const PendingCollectives&) = delete;

  // The memory and shape of one tensor's result. They are fixed before the other ranks are asked.
  struct Result {
    void* data = nullptr;
    Shape shape;
  };

  // Returns the number of a new run.
  Run Begin();

  // Submits the entry and returns its number. This sets the entry's outputs and callbacks. Inputs
  // and results must stay in place until Finish has returned for this number or, with an error, for
  // any other number. Finish reports immediate errors, too; `engine` may be null.
  Id Start(Run run, const std::shared_ptr<Engine>& engine, Entry entry,
           std::vector<Result> results);

  // Waits for the collectives of these numbers, which are invalid afterwards. Returns the first
  // failure in the order of `ids`; for a collective that was taken back, the cause. `outputs`: the
  // addresses where the caller expects all results, in order; an address that differs from Start's
  // is an error. `stream`: the GPU stream that uses the results next.
  Status Finish(const std::vector<Id>& ids, const std::vector<void*>& outputs,
                void* stream = nullptr);

  // Runs and collectives pass from call to call as numbers in the function's memory. The host
  // cannot read the memory of a GPU, so for a GPU the number is kept here under the address that it
  // would have there.
  void Keep(const void* address, int64_t number);
  std::optional<int64_t> Kept(const void* address) const;
  // Like Kept, and removes the number.
  std::optional<int64_t> TakeKept(const void* address);

  // Returns how many numbers are valid.
  size_t size() const;

 private:
  struct Waiter;
  // A result whose shape differs from the expected one.
  struct Reshaped {
    std::vector<char> memory;
    std::vector<int64_t> first_dims;  // allgather: Decision::first_dims
  };
  struct PendingCollective {
    Run run = 0;
    SharedRequest request;
    std::vector<Result> results;
    std::vector<Reshaped> reshaped;  // by result; used by the engine until the collective is over
    Status why_reshaped;             // ok: the difference in shape is no error
    std::weak_ptr<Engine> engine;    // weak: an engine must not end here
    Withdrawal withdrawal;
    void* stream = nullptr;     // on a GPU: the stream at the start
    std::shared_ptr<void> end;  // on a GPU: the mark on our stream after its work
    bool over = false;
    Status status;
    Waiter* waiter = nullptr;  // Not owned: the call of Finish that waits for it.
  };
  using Several = std::vector<std::shared_ptr<PendingCollective>>;
  // One call of Finish, which sleeps until all its collectives are over.
  struct Waiter {
    const Several* several = nullptr;  // Not owned.
    size_t left = 0;
    CondVar changed;
  };
  // A run that failed because a collective of this run or of another one failed.
  struct FailedRun {
    Run run = 0;
    Status why;
  };
  using Map = std::map<Id, std::shared_ptr<PendingCollective>>;

  static bool LacksJoinedAlone(const Reshaped& reshaped, int64_t rows);
  static void PutInPlace(PendingCollective* pending);
  static Status Allocate(PendingCollective* pending, size_t tensor, const Shape& shape,
                         void** output);
  void OnDone(const std::shared_ptr<PendingCollective>& pending, const Status& status);
  void WaitFor(const Several& several) TFHVD_REQUIRES(mutex_);
  Several UnderWay() const TFHVD_REQUIRES(mutex_);
  Status Take(const std::vector<Id>& ids, const std::vector<void*>& outputs, Several* taken)
      TFHVD_REQUIRES(mutex_);
  void FailRuns(const Several& several, const Status& why) TFHVD_REQUIRES(mutex_);
  static void TakeBack(const Several& several);
  const Status* WhyFailed(Run run) const TFHVD_REQUIRES(mutex_);
  static Status Follow(const PendingCollective& pending, void* stream);

  mutable Mutex mutex_;
  Run last_run_ TFHVD_GUARDED_BY(mutex_) = 0;
  Id last_id_ TFHVD_GUARDED_BY(mutex_) = 0;
  Map pending_ TFHVD_GUARDED_BY(mutex_);
  std::vector<const Waiter*> waiters_ TFHVD_GUARDED_BY(mutex_);
  std::deque<FailedRun> failed_ TFHVD_GUARDED_BY(mutex_);         // the most recent ones
  std::map<const void*, int64_t> kept_ TFHVD_GUARDED_BY(mutex_);  // an address may be used again
};

// The one of this process.
PendingCollectives& ProcessPendingCollectives();

}  // namespace tfhvd
