// START HERE. Engine: what makes collectives out of entries. It owns the stages of the data path
// and the one background thread that runs them (see cc/README.md):
//
//   Submit -> queue -> negotiator -> planner -> executor -> Entry::done
//
// An Engine is a value: several can live in one process, which is how everything above the wire is
// tested.
//
// Where a locked step is small and the thread sleeps, whoever submits the last tensor of a bucket
// runs that bucket within Submit, instead of waking it. So one thread at a time runs the stages,
// whichever; "the engine's thread" in their headers means that one.
//
// While a collective waits for other ranks, the engine goes on reading messages (OnWait in
// engine.cc): a failure that any rank has noticed ends the wait on all of them.
//
// Submit, Cancel, Leave and the getters may be called from any thread, also from within `done`. The
// engine never takes a lock of the framework's, except through Entry::allocate and Entry::done.
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

// What deals with tensors that are not in host memory; both null where there is none.
struct Accelerator {
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
};

class Engine {
 public:
  // Starts the thread. The communicator is that of process set 0, all ranks of the control plane;
  // those of other sets are opened by `open`, on the engine's thread.
  Engine(const Config& config, Log log, Topology topology, std::unique_ptr<ControlPlane> control,
         std::unique_ptr<Communicator> communicator, Accelerator accelerator = {},
         CommunicatorFactory open = nullptr);

  // Leaves, waits without bound for the job to end, and joins the thread.
  ~Engine();

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes the entry; its `done` is called exactly once, whatever happens: maybe by this very call,
  // and others' with it. So the caller holds no lock that a `done` takes. Returns the entry's id
  // for Cancel. Tensors on an accelerator may still be written by what is on the entry's stream
  // now.
  EntryId Submit(Entry&& entry);

  // What comes onto the framework's `stream` from here on begins after the mark that
  // EntryExtras::finished was told.
  Status Follow(void* stream, const std::shared_ptr<void>& mark);

  // Takes an entry back if it is not agreed yet; its `done` is called all the same, soon, with
  // kCancelled, or with the outcome of the collective where that came first. Unknown ids are
  // ignored.
  void Cancel(EntryId id);

  // Says to all ranks that this one submits nothing any more, and why ("" for a plain shutdown).
  // Entries of any rank that can no longer happen fail with kAborted. Entries submitted later fail
  // at once.
  void Leave(const std::string& reason);

  // Waits until every rank has left and the thread has ended; false after `seconds`. REQUIRES:
  // Leave.
  bool WaitUntilOver(double seconds);

  // Ends the engine at once, without a word to the other ranks: whoever knows that one of them is
  // lost tells all. What is pending fails with `why`, which is kAborted. WaitUntilOver waits for
  // the end.
  void Abandon(const Status& why);

  // Not ok: the job was lost, so that other ranks may be gone or go on without this one. REQUIRES:
  // WaitUntilOver has returned true.
  Status lost() const;

  // Whether entries are still taken: neither left nor failed. Not ok says why.
  Status health() const;

  // Whether the job ends here, and not by Leave: what goes wrong in the program from now on follows
  // from that. True before any collective fails because another rank has left or is lost, which
  // is long before `health` where that rank said goodbye. REQUIRES: not left.
  bool cut_short() const;

  // Whether entries may be on an accelerator.
  bool has_accelerator() const;

  const Topology& topology() const;

  // See Executor. REQUIRES: nothing has been submitted.
  void BarrierEvery(int64_t bytes, std::function<void()> passed);

  // Who is asked whether to go on, wherever the engine's thread waits for other ranks; for what
  // `open` opens. Lives as long as the engine.
  WaitMonitor* wait_monitor();

  // The settings that it runs by.
  const Config& config() const;

  // Whether a rank that has joined the set asks the others to stop, as of the last collective that
  // was done; until all have joined.
  bool stop_asked(int32_t process_set) const;

  // Asks all ranks to stop after one step: what is submitted from now on says so, and no locked
  // step has it. Costs nothing before. Any thread.
  void RequestStop();
  // Whether a rank has done so, as of the last collective of the set that was done: the same on all
  // of its ranks after the same collective. Stays so.
  bool stop_requested(int32_t process_set) const;

  // The process sets as of what was executed so far.
  const ProcessSetTable& process_sets() const;

  // What it records of its work. Lives as long as the engine; any thread.
  Telemetry& telemetry();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tfhvd
