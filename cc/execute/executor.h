// Executor: runs plans. Steps of a plan: copy in (if fused), one call on a Communicator, copy out,
// complete.
//
// executor.cc runs and completes plans; executor_memory.cc gets the memory of a plan before any
// data move; executor_collectives.cc implements each kind of collective.
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
  // keeps `sets` up to date, and calls `open` for the communicators of added sets.
  Executor(Device* host, ProcessSetTable* sets, Communicator* everyone, CommunicatorFactory open)
      : host_(host), sets_(sets), open_(std::move(open)), device_(host) {
    communicators_[0] = everyone;
  }
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Sets the device and the backend of tensors on an accelerator; both must outlive this object.
  // The first plan that needs a communicator there opens it; all ranks run that plan at the same
  // place.
  void SetAccelerator(Device* device, Backend* backend) {
    accelerator_ = device;
    backend_ = backend;
    if (device == nullptr) return;
    device->SetPollHook([this](double waited) { return OnDeviceWait(waited); });
  }

  // Sets the monitor that is called in every wait of a plan, on the host or for the accelerator;
  // must outlive this object.
  void SetWaitMonitor(WaitMonitor* monitor);

  // Sets the places at which tests end this process.
  void SetFailpoints(const Failpoints& failpoints) { failpoints_ = failpoints; }

  // Sets the observer of each plan's phases; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // `on_broken` is called on an error of Run or Poll before the error has any other effect: before
  // an entry fails with it, and before streams that wait for the accelerator continue. Must not
  // call back.
  void SetOnBroken(std::function<void(const Status&)> on_broken) {
    on_broken_ = std::move(on_broken);
  }

  // Runs a barrier of all ranks after the plan with which the host results since the last such
  // barrier reach `bytes`. Must be called before the first plan, on every rank. `passed` is called
  // after each barrier: everything done on this rank before is then done on every rank.
  void BarrierEvery(int64_t bytes, std::function<void()> passed) {
    barrier_every_ = bytes;
    passed_ = std::move(passed);
  }

  // Runs `plans`, which were made from `agreed`, and completes each entry as soon as its last
  // tensor is done. An error means that a communicator is broken and the job has failed; the
  // entries that were not done have failed with it, some only in CompleteRest.
  Status Run(const std::vector<Plan>& plans, std::vector<Agreed> agreed);

  // Returns an error if work on the accelerator has failed since, as Run does. Never blocks. Frees
  // memory that a failed plan may have touched; and completes entries that wait for others of their
  // backward pass, once the accelerator has no work that they could delay.
  Status Poll();
  // Returns whether any entry waits for its backward pass: then call Poll soon.
  bool holds() const { return !held_.empty(); }

  // Returns what runs now, for people: "allreduce 'x'", or "a collective" if nothing does.
  std::string doing() const;

  // Ends the executor: no plan follows. If the job has failed, every communicator fails with
  // `lost`. Returns when the accelerator touches no tensor any more, or after `seconds`.
  void Finish(const Status& lost, double seconds);

  // Completes the remaining entries: those of failed plans whose memory cannot be kept, and which a
  // communicator may touch during its calls. REQUIRES: Finish was called, and no communicator or
  // control plane is called from now on.
  void CompleteRest();

 private:
  // The memory that a plan needs on this rank in addition to its entries': executor_memory.cc.
  struct Room {
    // allgather, reducescatter: the bytes that each rank sends or gets, by piece and rank; and
    // their sum over all pieces, by rank.
    std::vector<std::vector<int64_t>> bytes;
    std::vector<int64_t> of_all;
    std::vector<int64_t> sent;  // alltoall: rows, by rank
    std::vector<int64_t> received;
    char* buffer = nullptr;  // the fusion buffer
    AdasumMemory adasum;
    std::vector<char> copy;  // Adasum: the tensor in host memory, or the zeros of a joined rank

    int64_t lacks = 0;  // bytes that this rank could not get
    Status why;         // the first reason
    void Note(int64_t bytes, const Status& status);
  };

  // A phase of the running plan, reported to the observer; lasts as long as this object. The texts
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

  // Copies the plan's tensors one after the other into the buffer, multiplied by `share`; and out
  // of it.
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
  Communicators opened_;                                      // made by `open_`
  Device* accelerator_ = nullptr;                             // Not owned; null: none.
  Backend* backend_ = nullptr;                                // Not owned.
  Communicators on_accelerator_;
  Device* device_;  // of the running plan: host_ or accelerator_
  // Backward passes of which only some entries have run: see EntryExtras.
  struct BackwardPass {
    int32_t ended = 0;
    std::vector<Entry> on_accelerator;
  };
  std::map<std::pair<int32_t, std::string>, BackwardPass> held_;  // by process set and name
  std::function<void(const Status&)> on_broken_;
  WaitMonitor* monitor_ = nullptr;  // Not owned.
  double asked_at_ = 0.0;           // seconds of the present wait at the last call of monitor_
  const Plan* plan_ = nullptr;      // Not owned: the running plan.
  const std::vector<Agreed>* agreed_ = nullptr;  // Not owned: its entries.
  // By index in `agreed_`: the error of an entry that fails alone, on every rank.
  std::vector<std::pair<int, Status>> failed_;
  // The memory of failed plans, while a communicator may touch it.
  std::vector<std::shared_ptr<void>> retained_;
  std::vector<std::pair<Entry, Status>> incomplete_;  // see CompleteRest
  std::function<void()> passed_;                      // empty: there are no such barriers
  int64_t barrier_every_ = 0;                         // bytes
  int64_t since_barrier_ = 0;                         // bytes of results
  Failpoints failpoints_;
  Observer* observer_ = nullptr;   // Not owned.
  std::vector<EntryId> observed_;  // of the running plan; empty if there is no observer
};

}  // namespace tfhvd
