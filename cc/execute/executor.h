// Executor: runs plans. Steps of a plan: copy in (if fused), one call on a Communicator, copy out,
// complete.
//
// Before any data move, GetMemory (plan_memory.h) gets what a plan needs; RunCollective does the
// call of its kind; BackwardPasses completes entries that belong together.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/comm/backend.h"
#include "cc/comm/communicator.h"
#include "cc/comm/world.h"
#include "cc/device/device.h"
#include "cc/execute/backward_passes.h"
#include "cc/execute/phases.h"
#include "cc/execute/plan_context.h"
#include "cc/execute/plan_memory.h"
#include "cc/flow/observer.h"
#include "cc/flow/plan.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

class Executor {
 public:
  // `host`, `sets` and `everyone`, the communicator of all ranks, must outlive this object. It
  // keeps `sets` up to date, and calls `open` for the communicators of added sets.
  Executor(Device* host, ProcessSetTable* sets, Communicator* everyone, CommunicatorFactory open)
      : host_(host), sets_(sets), open_(std::move(open)) {
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
    passes_.SetAccelerator(device);
    backend_ = backend;
    if (device == nullptr) return;
    device->SetPollHook(on_device_wait_);
  }

  // Sets the monitor that is called in every wait of a plan, on the host or for the accelerator;
  // must outlive this object.
  void SetWaitMonitor(WaitMonitor* monitor);

  // Sets the places at which tests end this process.
  void SetFailpoints(const Failpoints& failpoints) { failpoints_ = failpoints; }

  // Sets the observer of each plan's phases; not owned, may be null.
  void SetObserver(Observer* observer) { phases_.SetObserver(observer); }

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
  bool holds() const { return passes_.holds(); }

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
  Status LookAtAccelerator();
  Status OnDeviceWait(double waited);
  Status WithTheRank(const Status& failure);
  std::string Named(const std::string& does) const;
  void Retain(const Plan& plan, const std::vector<Agreed>& agreed, std::vector<bool>* touched);
  bool Settled();
  void Break(const Status& why, bool on_accelerator);
  void AbortAccelerator(const Status& why);
  Status Choose(const Plan& plan, PlanContext* context);
  Status Enqueue(const PlanContext& context, const Plan& plan, const std::vector<Agreed>& agreed,
                 PlanMemory* memory);
  Status LetFollow(const Entry& entry, Device* device);
  Status BarrierAfter(const Plan& plan);
  Status RunPlan(const Plan& plan, std::vector<Agreed>* agreed);
  Status RunStages(const Plan& plan, std::vector<Agreed>* agreed);
  Status RunWithout(const Plan& plan, const PlanMemory& memory, const std::vector<int64_t>& lacks,
                    std::vector<Agreed>* agreed);
  Status VerdictOn(int agreed, const Status& broken) const;

  Status AddProcessSet(const Agreed& agreed);
  Status RemoveProcessSet(const Agreed& agreed);

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
  BackwardPasses passes_;
  // Called in waits for the accelerator, with the seconds waited.
  const std::function<Status(double)> on_device_wait_ = [this](double waited) {
    return OnDeviceWait(waited);
  };
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
  Phases phases_;
};

}  // namespace tfhvd
