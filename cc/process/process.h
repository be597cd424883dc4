// Process: the composition root, and the ONE global: this process's engine and its memory for
// results. Everything above
// (cc/tf, cc/python) speaks to it; nothing below knows of it.
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

// Meets the peers and starts the engine. Already started: ok, nothing happens. May follow a
// Shutdown. `installed_nccl`: the file of NCCL that Python knows of, or "". `ranks`: who makes up
// the job, of all processes that were started together, numbered anew in this order; none for all.
// `identity`: its versions must be those of the others. `endpoints`: where all listen for each
// other, if the launcher has said so; then MPI is not used. Taken the first time alone. So is
// `membership`: where the launcher of an elastic job says who takes part in it as ranks are lost,
// or come (launcher_membership.h); else -1. With it, and without the endpoints of others, nobody is
// met: this process is in the job once generation 0 or a later one has come (WaitForGeneration). So
// it is where ranks are lost while all meet.
Status InitProcess(const std::string& installed_nccl, const std::vector<int>& ranks = {},
                   const Identity& identity = {}, const TcpEndpoints& endpoints = {},
                   int membership = -1);

// Comes to a failpoint that a program's part of the protocol has (cc/base/failpoints.h).
void PassFailpoint(Failpoint point);

// Which of how many ranks.
struct Place {
  int rank = 0;
  int size = 1;
};

// Gives a process that waits to join to an elastic job an engine of its own alone, until
// EndRehearsal: what it then traces, compiles and loads, others need not wait for. No collective of
// it reaches them, and no result of it is one of the job's. The end waits until nothing is under
// way. `place`: the one that it is to have, which is compiled into functions. `begun`: false where
// the settings ask for none; ended where none was begun, it does nothing. REQUIRES: JobGeneration()
// is -1, and whoever lets it in has not been told that it is ready.
Status BeginRehearsal(const Place& place, bool* begun);
void EndRehearsal();
// nullopt: this process does not rehearse.
std::optional<Place> RehearsedPlace();

// Leaves the job with `reason` ("" for a plain shutdown, otherwise the error that ends this
// process), waits for the others and stops the engine. With a reason the wait is bounded by
// TFHVD_SHUTDOWN_TIMEOUT_SECONDS, and the result says whether everybody took note. Not started: ok.
Status ShutdownProcess(const std::string& reason);

// Ends the transport (MPI), if tfhvd began it: once, when the process ends. `ended`: whether it
// did. After a job that was lost it does not, for MPI waits for every rank there, also for those
// that are gone or stopped; unless all of them have begun and ended a job since. REQUIRES:
// ShutdownProcess has returned ok, or no job was begun.
Status FinalizeProcess(bool* ended);

// The running engine, or null before InitProcess and after ShutdownProcess, and where this process
// waits to join. Shared: an entry in flight keeps it alive. In an elastic job another one
// follows where a rank is lost.
std::shared_ptr<Engine> ProcessEngine();

// Engine::Submit and Cancel, for entries that are to outlive the loss of a rank in an elastic job.
// `engine`: the running one; for CancelInJob the one that was, null if it is gone.
EntryId SubmitToJob(const std::shared_ptr<Engine>& engine, Entry&& entry);
void CancelInJob(const std::shared_ptr<Engine>& engine, EntryId id);

// Whether the job is elastic: inputs of entries are then needed until they are done.
bool JobIsElastic();

// How often the members of an elastic job have changed, since it began; 0 in a job of fixed size;
// -1 while this process waits until it is let in.
int JobGeneration();
// Waits, at most for so many seconds, for more than `generation`; the latest. nullopt: there will
// not be more, as in a job of fixed size.
std::optional<int> WaitForGeneration(int generation, double seconds);
// Of an elastic job where a rank was lost that had collectives on GPUs: the program goes back to a
// state that it has kept, and entries are taken again. Waits, at most for so many seconds, until
// they can be; the generation. nullopt: the job does not go on.
std::optional<int> GoBackInJob(double seconds);

// Of an elastic job: the last generation for which it has let in processes that waited, 0 for none;
// and how many wait.
int JobAdmitted();
int RanksWaiting();
// Waits, at most for so many seconds, until nothing that was submitted is under way; whether
// nothing is. REQUIRES: the job is elastic.
bool WaitUntilJobIsIdle(double seconds);

// Memory for large results, and for small ones; both live as long as the process. Trimmed by
// ShutdownProcess.
MemoryPool* ProcessMemoryPool();
BlockCache* ProcessBlockCache();

// What an operation fails with where there is no engine.
Status NotInitialized();

}  // namespace tfhvd
