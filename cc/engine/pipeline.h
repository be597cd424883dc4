// Pipeline: the data path from entries to their `done`, in one place: consensus, planner, executor;
// on rank 0 the coordinator's server as well. The engine decides which thread runs them, and when.
//
// It is the wait monitor of all that the executor runs: while a collective waits for other ranks,
// messages move on and nothing is executed, and a failure that any rank has noticed ends the wait.
//
// One thread at a time, who runs the engine; stop_asked, stop_requested and Abandon may be called
// from any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/mutex.h"
#include "cc/comm/backend.h"
#include "cc/comm/communicator.h"
#include "cc/comm/control_plane.h"
#include "cc/comm/host_peers.h"
#include "cc/comm/stall_guard.h"
#include "cc/comm/topology.h"
#include "cc/comm/world.h"
#include "cc/device/device.h"
#include "cc/engine/consensus.h"
#include "cc/execute/executor.h"
#include "cc/flow/entry.h"
#include "cc/flow/observer.h"
#include "cc/flow/process_set_table.h"
#include "cc/negotiate/coordinator_server.h"
#include "cc/queue/submission_queue.h"

namespace tfhvd {

class Pipeline : public WaitMonitor {
 public:
  // What is pointed to must outlive this object; `open` as for Engine.
  Pipeline(const Config& config, const Log& log, const Topology& topology, ControlPlane* control,
           Communicator* communicator, ProcessSetTable* sets, SubmissionQueue* queue,
           Observer* observer, CommunicatorFactory open);

  // As for Executor.
  void SetAccelerator(Device* device, Backend* backend) {
    executor_.SetAccelerator(device, backend);
  }
  // The other ranks are told right after `on_broken`: what follows may take a while, as until an
  // accelerator has come to rest.
  void SetOnBroken(std::function<void(const Status&)> on_broken);

  void BarrierEvery(int64_t bytes, std::function<void()> passed) {
    executor_.BarrierEvery(bytes, std::move(passed));
  }

  // Once through the stages with what was drained from the queue. Whether anything came or went.
  bool Run(SubmissionQueue::Batch* batch);

  // Runs the next bucket of a locked step, and nothing else; whether it still waits for other
  // ranks' votes. REQUIRES: a step is locked.
  bool RunBucket();
  // Whether Run has anything to do by now; what has arrived is kept for it.
  bool anything_to_run();

  // Not ok: why the job is lost. From then on nothing is executed.
  const Status& lost() const { return lost_; }
  void Lose(Status why) {
    if (lost_.ok()) lost_ = std::move(why);
  }

  // Whether the job ends here because of another rank, which has left or is lost. True before any
  // collective fails for it: who sees that can ask. Any thread.
  bool cut_short() const { return cut_short_.load(std::memory_order_acquire); }

  // Ends all waits, and says why from then on: whoever runs the engine is to end it. Any thread.
  void Abandon(const Status& why) TFHVD_EXCLUDES(abandoned_mutex_);
  bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }
  // Ok where it is not abandoned.
  Status abandonment() const TFHVD_EXCLUDES(abandoned_mutex_);

  // This rank has run out of memory: the job is lost.
  void LoseForMemory();

  // Tells all other ranks why the job is lost, once, unless they know. And waits for a moment, for
  // what fails next may end this process, before the others have read it.
  void RaiseAlarm(const Status& lost);
  void RaiseAlarmAndWait(const Status& lost);

  // Nothing follows: lets go of the communicators where the job is `lost`, and fails what is
  // pending with `why`.
  void Finish(const Status& lost, const Status& why);

  // Completes what may have been touched until the last call of MPI, which has been by now.
  void CompleteRest() { executor_.CompleteRest(); }

  const Consensus& consensus() const { return consensus_; }
  // When Run has something to do though nothing arrives, and whether a message is likely to.
  double wake_at(double now) const;
  bool expecting() const;

  // See Engine.
  bool stop_asked(int32_t process_set) TFHVD_EXCLUDES(stopping_mutex_);
  bool stop_requested(int32_t process_set) TFHVD_EXCLUDES(stopping_mutex_);

  // Whether all ranks are there, as far as this host sees. Never blocks.
  Status LookAtPeers();

  // For a rank that has left, and waits until all have: whether those are there, as far as this
  // host sees, of whom it needs a word. Rank 0 needs one of each rank that has not left, and the
  // others need rank 0's: who has left ends as soon as that is read. Never blocks.
  Status LookAtWhoIsToLeave() const;

  Status OnWait(const Wait& wait) override;

 private:
  Status Agree(double now, Consensus::Outcome* outcome);
  void Complete(Consensus::Outcome outcome);
  void NoteStop(const Agreed& agreed) TFHVD_EXCLUDES(stopping_mutex_);
  void Fail(Entry* entry, const Status& why);

  const Config& config_;
  const Log& log_;
  const Topology& topology_;
  ControlPlane* const control_;       // Not owned.
  Communicator* const communicator_;  // Not owned: of all ranks.
  const HostPeers host_peers_;
  Observer* const observer_;  // Not owned.
  const std::unique_ptr<Device> host_;
  const std::unique_ptr<CoordinatorServer> server_;  // rank 0's
  Consensus consensus_;
  Executor executor_;
  StallGuard guard_;
  Status lost_;
  bool alarm_raised_ = false;
  std::atomic<bool> cut_short_{false};

  std::atomic<bool> abandoned_{false};
  mutable Mutex abandoned_mutex_;
  Status abandonment_ TFHVD_GUARDED_BY(abandoned_mutex_);

  Mutex stopping_mutex_;
  std::set<int32_t> stopping_ TFHVD_GUARDED_BY(stopping_mutex_);
  std::set<int32_t> stop_requested_ TFHVD_GUARDED_BY(stopping_mutex_);
};

}  // namespace tfhvd
