// Process: the composition root, with the ONE global: this process's engine and its memory for
// results. The folders above (cc/tf, cc/python) call it; no folder below knows it.
//
// All functions may be called from any thread; Init and Shutdown one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/backends/tcp/tcp_mesh.h"
#include "cc/base/failpoints.h"
#include "cc/base/status.h"
#include "cc/comm/topology.h"
#include "cc/engine/engine.h"
#include "cc/memory/block_cache.h"
#include "cc/memory/memory_pool.h"
#include "cc/rendezvous/handshake.h"

namespace tfhvd {

// Connects the peers and starts the engine. Does nothing and returns ok if already started. May
// follow a Shutdown.
//
// `installed_nccl`: the file of NCCL that Python knows of, or "".
// `ranks`: the members of the job among all processes that were started together, in their new
// order; empty for all.
// `identity`: the versions, which all ranks must share.
// `endpoints`: the addresses where all processes listen, if the launcher has given them; then MPI
// is not used. Only the first call uses it.
// `membership`: the descriptor on which the launcher of an elastic job sends the members as ranks
// fail or join (launcher_membership.h); otherwise -1. Only the first call uses it.
//
// With `membership` and without `endpoints`, the call connects to no peers: this process is in the
// job once generation 0 or a later one has arrived (WaitForGeneration). The same holds if ranks
// fail while all processes connect.
Status InitProcess(const std::string& installed_nccl, const std::vector<int>& ranks = {},
                   const Identity& identity = {}, const TcpEndpoints& endpoints = {},
                   int membership = -1);

// Hits a failpoint that is in the program's part of the protocol (cc/base/failpoints.h).
void PassFailpoint(Failpoint point);

// A rank and the number of ranks.
struct Place {
  int rank = 0;
  int size = 1;
};

// Gives a process that waits to join an elastic job an engine without peers, until EndRehearsal.
// The process warms up with it: the others need not wait while it traces, compiles and loads. Its
// collectives reach no other rank, and their results are not used in the job.
//
// `place`: the rank and size that the process expects to get, which are compiled into functions.
// `begun`: false if the settings turn warm-up off.
//
// EndRehearsal waits until all entries are done, and does nothing if no warm-up has begun.
// REQUIRES: JobGeneration() is -1, and the launcher has not been told that this process is ready.
Status BeginRehearsal(const Place& place, bool* begun);
void EndRehearsal();
// Returns the place that the process warms up for; nullopt if it does not warm up.
std::optional<Place> RehearsedPlace();

// Leaves the job with `reason`, waits for the other ranks and stops the engine. `reason`: "" for a
// plain shutdown, otherwise the error that ends this process. With a reason, the wait is limited to
// TFHVD_SHUTDOWN_TIMEOUT_SECONDS, and the result says whether all ranks acknowledged it. Returns ok
// if not started.
Status ShutdownProcess(const std::string& reason);

// Ends the transport (MPI) if tfhvd began it; called once, when the process ends. `ended`: whether
// it did. It does not after a failed job, because MPI would wait for every rank, also for failed
// and stopped ones; unless all ranks have begun and ended another job since. REQUIRES:
// ShutdownProcess has returned ok, or no job was begun.
Status FinalizeProcess(bool* ended);

// Returns the running engine; null before InitProcess, after ShutdownProcess, and while this
// process waits to join. Shared: an entry in flight keeps it alive. In an elastic job another
// engine follows when a rank fails.
std::shared_ptr<Engine> ProcessEngine();

// Engine::Submit and Cancel for entries that must survive the failure of a rank in an elastic job.
// `engine`: the running engine; for CancelInJob the engine of the submission, null if it is gone.
EntryId SubmitToJob(const std::shared_ptr<Engine>& engine, Entry&& entry);
void CancelInJob(const std::shared_ptr<Engine>& engine, EntryId id);

// Returns whether the job is elastic. If it is, inputs of entries must stay until the entries are
// done.
bool JobIsElastic();

// Returns how often the members of an elastic job have changed since its start; 0 in a job of fixed
// size; -1 while this process waits for admission.
int JobGeneration();
// Waits at most `seconds` for a generation later than `generation`, and returns the latest. Returns
// nullopt if no later one will come, as in a job of fixed size.
std::optional<int> WaitForGeneration(int generation, double seconds);
// Accepts entries again in an elastic job that had collectives on GPUs when a rank failed; the
// program calls this when it returns to a state that it has saved. Waits at most `seconds` for an
// engine, and returns the generation; nullopt if the job does not continue.
std::optional<int> RollBackInJob(double seconds);

// JobAdmitted returns the last generation in which an elastic job has admitted waiting processes, 0
// if it has admitted none. RanksWaiting returns how many processes wait.
int JobAdmitted();
int RanksWaiting();
// Waits at most `seconds` until all submitted entries are done; returns whether they are. REQUIRES:
// the job is elastic.
bool WaitUntilJobIsIdle(double seconds);

// Memory for large results, and for small ones. Both live as long as the process; ShutdownProcess
// trims them.
MemoryPool* ProcessMemoryPool();
BlockCache* ProcessBlockCache();

// Returns the error of an operation that finds no engine.
Status NotInitialized();

}  // namespace tfhvd
