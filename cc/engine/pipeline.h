// Pipeline: the data path from entries to their `done`, in one place: consensus, planner, executor;
// on rank 0 also the coordinator's server. The engine decides which thread runs them, and when.
//
// It is the wait monitor of everything that the executor runs: while a collective waits for other
// ranks, messages are passed on but nothing else is executed, and a failure that any rank has
// noticed ends the wait.
//
// Used by one thread at a time, the runner of the engine; any thread may call stop_asked,
// stop_requested and Abandon.
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
  // All pointers must outlive this object; `open` as for Engine.
  Pipeline(const Config& config, const Log& log, const Topology& topology, ControlPlane* control,
           Communicator* communicator, ProcessSetTable* sets, SubmissionQueue* queue,
           Observer* observer, CommunicatorFactory open);

  // See Executor.
  void SetAccelerator(Device* device, Backend* backend) {
    executor_.SetAccelerator(device, backend);
  }
  // `on_broken` runs before the other ranks are told of a failure, and those before the rest, which
  // may take a while, such as waiting for an accelerator to stop.
  void SetOnBroken(std::function<void(const Status&)> on_broken);

  void BarrierEvery(int64_t bytes, std::function<void()> passed) {
    executor_.BarrierEvery(bytes, std::move(passed));
  }

  // Passes once through the stages with a batch from the queue; returns whether there was anything
  // to do.
  bool Run(SubmissionQueue::Batch* batch);

  // Runs the next bucket of a locked step, and nothing else; returns whether it still waits for
  // votes of other ranks. REQUIRES: a step is locked.
  bool RunBucket();
  // Returns whether Run has work; keeps the messages that have arrived for it.
  bool anything_to_run();

  // Returns why the job has failed; ok if it has not. After a failure nothing is executed.
  const Status& lost() const { return lost_; }
  void Lose(Status why) {
    if (lost_.ok()) lost_ = std::move(why);
  }

  // Returns whether the job ends here because another rank has left or failed. True before any
  // collective fails for this reason, so that a program that sees the failure can ask. Any thread.
  bool cut_short() const { return cut_short_.load(std::memory_order_acquire); }

  // Ends all waits, and gives `why` as their error from then on; the runner must then end the
  // engine. Any thread.
  void Abandon(const Status& why) TFHVD_EXCLUDES(abandoned_mutex_);
  bool abandoned() const { return abandoned_.load(std::memory_order_acquire); }
  // Returns ok if the pipeline is not abandoned.
  Status abandonment() const TFHVD_EXCLUDES(abandoned_mutex_);

  // Fails the job because this rank has no memory left.
  void LoseForMemory();

  // Tells all other ranks once why the job has failed, unless they know. RaiseAlarmAndWait then
  // waits a moment: the next failure may end this process before the others have read the message.
  void RaiseAlarm(const Status& lost);
  void RaiseAlarmAndWait(const Status& lost);

  // Ends the pipeline: closes the communicators if the job has failed (`lost`), and fails pending
  // entries with `why`.
  void Finish(const Status& lost, const Status& why);

  // Completes the entries whose memory MPI might have touched until its last call, which has
  // returned.
  void CompleteRest() { executor_.CompleteRest(); }

  const Consensus& consensus() const { return consensus_; }
  // When Run has work even if nothing arrives, and whether a message is likely to arrive.
  double wake_at(double now) const;
  bool expecting() const;

  // See Engine.
  bool stop_asked(int32_t process_set) TFHVD_EXCLUDES(stopping_mutex_);
  bool stop_requested(int32_t process_set) TFHVD_EXCLUDES(stopping_mutex_);

  // Checks whether all ranks are alive, as far as this host sees. Never blocks.
  Status LookAtPeers();

  // For a rank that has left and waits until all have: checks whether the ranks whose message it
  // needs are alive, as far as this host sees. Rank 0 needs a message of each rank that has not
  // left. The others need only a message of rank 0, after which they end. Never blocks.
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
  Communicator* const communicator_;  // Not owned: the communicator of all ranks.
  const HostPeers host_peers_;
  Observer* const observer_;  // Not owned.
  const std::unique_ptr<Device> host_;
  const std::unique_ptr<CoordinatorServer> server_;  // on rank 0 only
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
