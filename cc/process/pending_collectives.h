// PendingCollectives: collectives whose submitter does not stay. A compiled function begins a
// collective in one call, which gives it a number, and waits for the collectives of many numbers
// in a later call.
//
// A run is one execution of a compiled function, or of a loop's body or a branch in it. If one of
// its collectives fails the execution ends, and its memory goes; nothing of it may be under way by
// then. XLA does not say which runs are parts of one execution. Therefore all that is under way in
// any run is taken back when one fails, and these runs begin nothing any more; Finish, when it
// fails, waits for them.
//
// A result has the shape that the compiled function expects, or the collective fails. Where ranks
// have joined they bring rows of zeros to an allgather, in their places, as they bring zeros to an
// allreduce.
//
// On a GPU a collective is over, here, once it is in order on our stream; Finish makes the stream
// that it is given come after it, and does not wait for the GPU.
//
// All methods may be called from any thread. Start waits no longer than Engine::Submit, Finish
// until the collectives are over: it must not be called on an engine's thread.
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

  // Where the result of one tensor is to be, and its shape: fixed before the other ranks are asked.
  struct Result {
    void* data = nullptr;
    Shape shape;
  };

  // Gives the number of a new run.
  Run Begin();

  // Submits the entry, whose outputs and callbacks are set here, and gives its number. Inputs and
  // results stay where they are until Finish has returned for this one or, with an error, for any
  // other. What goes wrong at once (`engine` may be null) is Finish's to report.
  Id Start(Run run, const std::shared_ptr<Engine>& engine, Entry entry,
           std::vector<Result> results);

  // Waits for the collectives of these numbers, which are void afterwards. Reports the first that
  // failed, in their order; of one that was taken back, why. `outputs` are
  // the addresses at which the caller looks for all results, in order; one that is not the same as
  // at the start is an error. `stream`: the stream on the GPU that goes on with the results.
  Status Finish(const std::vector<Id>& ids, const std::vector<void*>& outputs,
                void* stream = nullptr);

  // Runs and collectives travel from call to call as numbers in the function's memory. Where that
  // is a GPU's memory, which the host cannot read, the number is kept here, by the address that it
  // would have there.
  void Keep(const void* address, int64_t number);
  std::optional<int64_t> Kept(const void* address) const;
  // The same of a number that nobody asks for again.
  std::optional<int64_t> TakeKept(const void* address);

  // How many numbers are not void.
  size_t size() const;

 private:
  struct Waiter;
  // A result that has another shape than expected.
  struct Reshaped {
    std::vector<char> memory;
    std::vector<int64_t> first_dims;  // allgather: Decision::first_dims
  };
  struct PendingCollective {
    Run run = 0;
    SharedRequest request;
    std::vector<Result> results;
    std::vector<Reshaped> reshaped;  // by result; the engine's until it is over
    Status why_reshaped;             // ok: no error is to be made of it
    std::weak_ptr<Engine> engine;    // weak: this must not be an engine's last owner
    Withdrawal withdrawal;
    void* stream = nullptr;     // on a GPU: the start's
    std::shared_ptr<void> end;  // on a GPU: where our stream is done with it
    bool over = false;
    Status status;
    Waiter* waiter = nullptr;  // Not owned: whoever waits for it to be over.
  };
  using Several = std::vector<std::shared_ptr<PendingCollective>>;
  // One call of Finish, asleep until all its collectives are over.
  struct Waiter {
    const Several* several = nullptr;  // Not owned.
    size_t left = 0;
    CondVar changed;
  };
  // A run that has ended with the failure of this or another one's collective.
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
  std::deque<FailedRun> failed_ TFHVD_GUARDED_BY(mutex_);         // the last few
  std::map<const void*, int64_t> kept_ TFHVD_GUARDED_BY(mutex_);  // addresses are used again
};

// This process's.
PendingCollectives& ProcessPendingCollectives();

}  // namespace tfhvd
