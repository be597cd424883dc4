// START HERE. Engine: turns entries into collectives. It owns the stages of the data path and the
// one background thread that runs them (see cc/README.md):
//
//   Submit -> queue -> negotiator -> planner -> executor -> Entry::done
//
// An Engine is a value: several can live in one process, and so the tests run everything above the
// wire.
//
// If a locked step is small and the engine's thread sleeps, the thread that submits the last tensor
// of a bucket runs that bucket within Submit, instead of waking the engine's thread. Still only one
// thread at a time runs the stages. "The engine's thread" in their headers means this one.
//
// While a collective waits for other ranks, the engine continues to read messages
// (Pipeline::OnWait): a failure that any rank has noticed ends the wait on all ranks.
//
// Any thread may call Submit, Cancel, Leave and the getters, also from within `done`. The engine
// never takes a lock of the framework, except through Entry::allocate and Entry::done.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/backend.h"
#include "cc/comm/communicator.h"
#include "cc/comm/control_plane.h"
#include "cc/comm/topology.h"
#include "cc/comm/world.h"
#include "cc/device/device.h"
#include "cc/flow/entry.h"
#include "cc/flow/process_set_table.h"
#include "cc/observe/telemetry.h"

namespace tfhvd {

// Handles tensors that are not in host memory; both null if there is no accelerator.
struct Accelerator {
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
};

class Engine {
 public:
  // Starts the thread. `communicator`: the communicator of process set 0, which is all ranks of the
  // control plane. `open` opens those of other sets, on the engine's thread.
  Engine(const Config& config, Log log, Topology topology, std::unique_ptr<ControlPlane> control,
         std::unique_ptr<Communicator> communicator, Accelerator accelerator = {},
         CommunicatorFactory open = nullptr);

  // Leaves, waits without limit for the job to end, and joins the thread.
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes the entry, and calls its `done` exactly once in every case. This very call may call it,
  // and those of other entries, so the caller must not hold a lock that a `done` takes. Returns the
  // entry's id for Cancel. Work that is already on the entry's stream may still write its tensors
  // on an accelerator.
  EntryId Submit(Entry&& entry);

  // Makes later work on the framework's `stream` wait for the mark that EntryExtras::finished
  // received.
  Status Follow(void* stream, const std::shared_ptr<void>& mark);

  // Takes an entry back if it is not agreed yet. Its `done` is called soon in any case: with
  // kCancelled, or with the outcome of the collective if that comes first. Ignores unknown ids.
  void Cancel(EntryId id);

  // Tells all ranks that this one submits no more entries, and why ("" for a plain shutdown).
  // Entries of any rank that can no longer complete fail with kAborted. Entries that are submitted
  // later fail at once.
  void Leave(const std::string& reason);

  // Waits until every rank has left and the thread has ended; returns false after `seconds`.
  // REQUIRES: Leave was called.
  bool WaitUntilOver(double seconds);

  // Ends the engine at once, without a message to the other ranks: the caller knows that a rank has
  // failed, and all ranks learn it from the launcher. Pending entries fail with `why`, which is
  // kAborted. WaitUntilOver waits for the end.
  void Abandon(const Status& why);

  // Returns why the job has failed; ok if it has not. After a failure, other ranks may be gone or
  // continue without this one. REQUIRES: WaitUntilOver has returned true.
  Status lost() const;

  // Returns ok while entries are taken, otherwise why not: the engine has left or failed.
  Status health() const;

  // Returns whether the job ends here because another rank has failed or left: later errors in the
  // program follow from that. Becomes true before the first collective fails for this reason. If
  // that rank left in order, `health` changes much later. REQUIRES: Leave was not called.
  bool cut_short() const;

  // Returns whether entries may be on an accelerator.
  bool has_accelerator() const;

  const Topology& topology() const;

  // See Executor. REQUIRES: nothing has been submitted.
  void BarrierEvery(int64_t bytes, std::function<void()> passed);

  // Returns the monitor that is called whenever the engine's thread waits for other ranks; pass it
  // to what `open` opens. Lives as long as the engine.
  WaitMonitor* wait_monitor();

  // Returns the settings of this engine.
  const Config& config() const;

  // Returns whether a rank that has joined the set (hvd.join) asks the others to stop, as of the
  // last completed collective; false again once all have joined.
  bool stop_asked(int32_t process_set) const;

  // Asks all ranks to stop after one step: entries carry the request from now on, and so match no
  // locked step. Costs nothing before the call. Any thread.
  void RequestStop();
  // Returns whether a rank has called RequestStop, as of the set's last completed collective. All
  // ranks of the set get the same answer after the same collective. Stays true.
  bool stop_requested(int32_t process_set) const;

  // Returns the process sets after the collectives that were executed so far.
  const ProcessSetTable& process_sets() const;

  // Returns the engine's records of its work. Lives as long as the engine; any thread.
  Telemetry& telemetry();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tfhvd
