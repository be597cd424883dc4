// Executor: runs plans. One plan is: copy in (where fused), one call on a Communicator, copy out,
// complete.
//
// executor.cc runs and completes; executor_memory.cc gets the memory that a plan takes before any
// data move; executor_collectives.cc has what each kind of collective does.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/collectives/adasum.h"
#include "cc/comm/backend.h"
#include "cc/comm/communicator.h"
#include "cc/comm/world.h"
#include "cc/device/device.h"
#include "cc/flow/observer.h"
#include "cc/flow/plan.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

class Executor {
 public:
  // `host`, `sets` and `everyone`, the communicator of all ranks, must outlive this object. It
  // keeps `sets` true, and opens the communicators of the sets that are added by `open`.
  Executor(Device* host, ProcessSetTable* sets, Communicator* everyone, CommunicatorFactory open)
      : host_(host), sets_(sets), open_(std::move(open)), device_(host) {
    communicators_[0] = everyone;
  }
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Where tensors on an accelerator are dealt with; both must outlive this object. Its
  // communicators are opened by the first plan that needs one, which all ranks run at the same
  // place.
  void SetAccelerator(Device* device, Backend* backend) {
    accelerator_ = device;
    backend_ = backend;
    if (device == nullptr) return;
    device->SetPollHook([this](double waited) { return OnDeviceWait(waited); });
  }

  // Who is asked in every wait of a plan, on the host or for the accelerator; must outlive this
  // object.
  void SetWaitMonitor(WaitMonitor* monitor);

  // Where tests have this process end.
  void SetFailpoints(const Failpoints& failpoints) { failpoints_ = failpoints; }

  // Who is told of each plan's phases; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Who is told of an error of Run or Poll before anybody can see what it left: before an entry
  // fails with it, and before streams that wait for the accelerator go on. Must not call back.
  void SetOnBroken(std::function<void(const Status&)> on_broken) {
    on_broken_ = std::move(on_broken);
  }

  // From the first plan on, and on every rank: a barrier of all ranks follows the plan by which the
  // results on the host, since the last such barrier, come to `bytes`. `passed` is called after
  // each: then whatever was done on this rank before is done on every rank.
  void BarrierEvery(int64_t bytes, std::function<void()> passed) {
    barrier_every_ = bytes;
    passed_ = std::move(passed);
  }

  // Runs `plans`, which were made from `agreed`, and completes every entry of it, each as soon as
  // its last tensor is done. An error means that a communicator is broken and the job with it; the
  // entries not done by then have failed with it, some only in CompleteRest.
  Status Run(const std::vector<Plan>& plans, std::vector<Agreed> agreed);

  // Whether work on the accelerator has failed since; as an error of Run. Never blocks. Lets go of
  // memory that a failed plan may have touched until now, and of entries that wait for others of
  // their backward pass, once there is nothing on the accelerator that they could delay.
  Status Poll();
  // Whether any entry waits so: Poll is to be called soon.
  bool holds() const { return !held_.empty(); }

  // What is run now, for people: "allreduce 'x'"; "a collective" where nothing is.
  std::string doing() const;

  // No plan follows. Where the job is lost every communicator fails with `lost`. Returns once the
  // accelerator touches no tensor any more: what hangs is given up after `seconds`.
  void Finish(const Status& lost, double seconds);

  // Completes what Run has not: entries of a plan that failed, whose memory nobody can keep, and
  // which a communicator may touch while it is called. REQUIRES: Finish was called, and no
  // communicator or control plane is called from now on.
  void CompleteRest();

 private:
  // What a plan takes on this rank beside its entries' own memory: executor_memory.cc.
  struct Room {
    // allgather, reducescatter: what each rank brings or gets, by piece and rank, and of all
    // pieces, by rank.
    std::vector<std::vector<int64_t>> bytes;
    std::vector<int64_t> of_all;
    std::vector<int64_t> sent;  // alltoall: rows, by rank
    std::vector<int64_t> received;
    char* buffer = nullptr;  // through which tensors travel together
    AdasumMemory adasum;
    std::vector<char> copy;  // Adasum: the tensor in host memory, or the zeros of a joined rank

    int64_t lacks = 0;  // bytes that are not to be had
    Status why;         // the first time
    void Note(int64_t bytes, const Status& status);
  };

  // A phase of the plan that is run, for who observes it: as long as this object lives. The texts
  // live as long as the process.
  class Phase {
   public:
    Phase(const Executor* executor, const char* name) : Phase(executor, name, "") {}
    Phase(const Executor* executor, const char* carrier, const char* call);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    const Executor* const executor_;  // Not owned.
  };

  void Observe(const Plan& plan, const std::vector<Agreed>& agreed);
  Status LookAtAccelerator();
  Status OnDeviceWait(double waited);
  Status WithTheRank(const Status& failure);
  std::string Named(const std::string& does) const;
  void End(Entry entry, const Status& status, bool on_accelerator);
  void Release(std::vector<Entry>* entries, const Status& status);
  void ReleaseAll(const Status& status);
  void Retain(const Plan& plan, const std::vector<Agreed>& agreed, std::vector<bool>* touched);
  bool Settled();
  void Break(const Status& why, bool on_accelerator);
  void AbortAccelerator(const Status& why);
  Status Choose(const Plan& plan, Communicator** communicator);
  Status Enqueue(const Plan& plan, Communicator* communicator, Room* room,
                 const std::vector<Agreed>& agreed);
  Status LetFollow(const Entry& entry);
  Status BarrierAfter(const Plan& plan);
  Status RunPlan(const Plan& plan, std::vector<Agreed>* agreed);
  Status RunStages(const Plan& plan, std::vector<Agreed>* agreed);
  Status AllReduce(const Plan& plan, Communicator* communicator, const Room& room,
                   const std::vector<Agreed>& agreed);
  Status RunAdasum(const Plan& plan, Room* room, const std::vector<Agreed>& agreed);
  Status Broadcast(const Plan& plan, Communicator* communicator, const Room& room,
                   const std::vector<Agreed>& agreed);
  Status AllGather(const Plan& plan, Communicator* communicator, const Room& room,
                   const std::vector<Agreed>& agreed);
  Status ReduceScatter(const Plan& plan, Communicator* communicator, const Room& room,
                       const std::vector<Agreed>& agreed);
  Status AllToAll(const Plan& plan, Communicator* communicator, const Room& room,
                  const std::vector<Agreed>& agreed);

  Status MakeRoom(const Plan& plan, Communicator* communicator, std::vector<Agreed>* agreed,
                  Room* room);
  Status RoomForRows(const Plan& plan, const Communicator& communicator,
                     std::vector<Agreed>* agreed, Room* room);
  Status RoomForParts(const Plan& plan, const Communicator& communicator,
                      std::vector<Agreed>* agreed, Room* room);
  Status RoomForExchange(const Plan& plan, std::vector<Agreed>* agreed, Room* room);
  Status RoomForAdasum(const Plan& plan, const Communicator& communicator,
                       const std::vector<Agreed>& agreed, Room* room);
  Status GetBuffer(int64_t bytes, Room* room);
  Status TellLacks(const Plan& plan, const Room& room, std::vector<int64_t>* lacks);
  Status RunWithout(const Plan& plan, const Room& room, const std::vector<int64_t>& lacks,
                    std::vector<Agreed>* agreed);
  Status VerdictOn(int agreed, const Status& broken) const;

  Status AddProcessSet(const Agreed& agreed);
  Status RemoveProcessSet(const Agreed& agreed);
  Status AllocateRows(const Piece& piece, std::vector<Agreed>* agreed, int64_t rows, Room* room);

  // The plan's tensors one after the other into the buffer, multiplied by `share`, and out of it.
  Status CopyIn(const Plan& plan, const std::vector<Agreed>& agreed, double share, char* buffer);
  Status CopyOut(const Plan& plan, const char* buffer, const std::vector<Agreed>& agreed);

  Status CopyShare(void* to, const void* from, int64_t bytes, DType dtype, double share);
  Status FillForJoined(void* to, int64_t bytes, DType dtype, ReduceOp op);

  // By process set.
  using Communicators = std::unordered_map<int32_t, std::unique_ptr<Communicator>>;

  Device* const host_;           // Not owned.
  ProcessSetTable* const sets_;  // Not owned.
  const CommunicatorFactory open_;
  std::unordered_map<int32_t, Communicator*> communicators_;  // Not owned; by process set.
  Communicators opened_;                                      // those of `open_`
  Device* accelerator_ = nullptr;                             // Not owned; null: none.
  Backend* backend_ = nullptr;                                // Not owned.
  Communicators on_accelerator_;
  Device* device_;  // of the plan that is run: one of the two
  // Backward passes of which some entries have run and others have not: EntryExtras.
  struct BackwardPass {
    int32_t ended = 0;
    std::vector<Entry> on_accelerator;
  };
  std::map<std::pair<int32_t, std::string>, BackwardPass> held_;  // by process set and name
  std::function<void(const Status&)> on_broken_;
  WaitMonitor* monitor_ = nullptr;  // Not owned.
  double asked_at_ = 0.0;           // seconds of the wait for the accelerator, when it was
  const Plan* plan_ = nullptr;      // Not owned: what is run, and of whom
  const std::vector<Agreed>* agreed_ = nullptr;  // likewise
  // Of those that are run: what fails by itself on every rank, by index.
  std::vector<std::pair<int, Status>> failed_;
  // The memory of failed plans, until no communicator touches it any more.
  std::vector<std::shared_ptr<void>> retained_;
  std::vector<std::pair<Entry, Status>> incomplete_;  // see CompleteRest
  std::function<void()> passed_;                      // empty: there are no such barriers
  int64_t barrier_every_ = 0;                         // bytes
  int64_t since_barrier_ = 0;                         // bytes of results
  Failpoints failpoints_;
  Observer* observer_ = nullptr;   // Not owned.
  std::vector<EntryId> observed_;  // of the plan that is run; empty where nobody observes it
};

}  // namespace tfhvd
