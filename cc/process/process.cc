#include "cc/process/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <utility>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/mpi/mpi_world.h"
#include "cc/backends/tcp/tcp_world.h"
#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/mutex.h"
#include "cc/comm/world.h"
#include "cc/elastic/elastic_job.h"
#include "cc/process/engine_maker.h"
#include "cc/rendezvous/handshake.h"
#include "cc/rendezvous/launcher_membership.h"
#include "cc/rendezvous/start_monitor.h"

namespace tfhvd {
namespace {

// How long collectives of an elastic job wait for the next roster after one has failed.
constexpr std::chrono::seconds kRosterLimit(60);

// The one global. Never destroyed, because the engine's thread may run until the process ends.
struct State {
  Mutex lifecycle;  // held by Init, Shutdown and Finalize; taken before `mutex`
  std::unique_ptr<World> world TFHVD_GUARDED_BY(lifecycle);  // of all processes of the start
  // Whether a job has failed and no job of all processes has ended well since.
  bool lost TFHVD_GUARDED_BY(lifecycle) = false;
  // The worlds of jobs of some of the processes, by their ranks.
  std::map<std::vector<int>, std::unique_ptr<World>> parts TFHVD_GUARDED_BY(lifecycle);

  // In an elastic job: the membership that the launcher sends, and a copy of the listening
  // descriptor, from which each generation makes its copy.
  std::unique_ptr<LauncherMembership> membership TFHVD_GUARDED_BY(lifecycle);
  Fd listener TFHVD_GUARDED_BY(lifecycle);
  std::optional<Making> joining TFHVD_GUARDED_BY(lifecycle);  // set in a process that joins later

  Mutex mutex;
  Failpoints failpoints TFHVD_GUARDED_BY(mutex);  // of an elastic job
  std::shared_ptr<Engine> engine TFHVD_GUARDED_BY(mutex);
  std::shared_ptr<ElasticJob> elastic TFHVD_GUARDED_BY(mutex);  // used instead of `engine`
  std::shared_ptr<Engine> rehearsal TFHVD_GUARDED_BY(mutex);    // of the warm-up; used first
  std::optional<Place> place TFHVD_GUARDED_BY(mutex);           // that the warm-up is for
  std::atomic<bool> is_elastic{false};

  MemoryPool pool;    // provides its own synchronization
  BlockCache blocks;  // provides its own synchronization
};

State& TheState() {
  static State* const state = new State();
  return *state;
}

// Returns null in a job of fixed size, without taking a lock, because all entries pass here; and
// for the `engine` of a warm-up.
std::shared_ptr<ElasticJob> TheElasticJob(const std::shared_ptr<Engine>& engine = nullptr) {
  State& state = TheState();
  if (!JobIsElastic()) return nullptr;
  MutexLock lock(&state.mutex);
  return engine != nullptr && engine == state.rehearsal ? nullptr : state.elastic;
}

std::chrono::nanoseconds NanosecondsOf(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// The launcher of this process says whether there are other processes.
Status ConnectWorld(const Config& config, const TcpEndpoints& endpoints,
                    std::unique_ptr<World>* world) {
  if (endpoints.exists()) return ConnectTcpWorld(config, endpoints, world);
  const LaunchHints hints = ReadLaunchHints();
  if (hints.started_by_mpi) return ConnectMpiWorld(config, hints, world);
  *world = MakeSoloWorld();
  return Status::Ok();
}

// Finds the world of `ranks`; empty for all. A list of all ranks in order means the same as an
// empty one: each rank may use either form.
Status FindWorld(const Config& config, const std::vector<int>& ranks, const TcpEndpoints& endpoints,
                 State* state, World** world) TFHVD_REQUIRES(state->lifecycle) {
  if (state->world == nullptr)
    TFHVD_RETURN_IF_ERROR(ConnectWorld(config, endpoints, &state->world));
  *world = state->world.get();
  if (ranks.empty() || ranks == RanksOf(**world)) return Status::Ok();
  std::unique_ptr<World>& part = state->parts[ranks];
  if (part == nullptr) TFHVD_RETURN_IF_ERROR(state->world->OpenPart(ranks, &part));
  *world = part.get();
  return Status::Ok();
}

// `engine`: the engine of `roster`, or null; see ElasticJob. `log`: for changes of the members.
std::shared_ptr<ElasticJob> MakeElasticJob(Making making, Roster roster,
                                           std::shared_ptr<Engine> engine, const Log& log,
                                           State* state) TFHVD_REQUIRES(state->lifecycle) {
  making.warnings.clear();
  return std::make_shared<ElasticJob>(
      std::move(roster), std::move(engine), state->membership.get(),
      // `world`: the world of the job's latest engine, which lives during this call.
      [making, listener = state->listener.get(), world = state->world.get()](
          const Roster& next, WaitMonitor* monitor, const ElasticJob::Reconcile& reconcile,
          std::shared_ptr<Engine>* opened) mutable {
        // Peers of the next generation connect to the same port, and some may have connected
        // already.
        world->StopListening();
        LongWaitMonitor waits(monitor, making.config, next.rank);
        return MakeEngineOfRoster(making, listener, next, &waits, reconcile, opened, &world);
      },
      log, kRosterLimit, making.config.failpoints);
}

// `rank`: the number that the launcher gave to this process.
Status SetFailpoints(int rank, Config* config, State* state) TFHVD_EXCLUDES(state->mutex) {
  TFHVD_RETURN_IF_ERROR(Failpoints::Parse(config->test_failpoints, rank, &config->failpoints));
  const MutexLock lock(&state->mutex);
  state->failpoints = config->failpoints;
  return Status::Ok();
}

// For a process without an engine: its first roster is still to come. `before`: the processes that
// were started together with it.
void AwaitRoster(const Making& making, int rank, std::vector<int> before, State* state)
    TFHVD_REQUIRES(state->lifecycle) {
  Roster none;
  none.generation = -1;
  none.members = std::move(before);
  const Log log(making.config.log_level, rank);
  std::shared_ptr<ElasticJob> job = MakeElasticJob(making, std::move(none), nullptr, log, state);
  MutexLock lock(&state->mutex);
  state->elastic = std::move(job);
  state->is_elastic.store(true);
}

// For a process that the other ranks have to admit.
Status BeginToJoin(const Making& making, const TcpEndpoints& endpoints, int membership,
                   State* state) TFHVD_REQUIRES(state->lifecycle) {
  if (state->world != nullptr) {
    return Status::FailedPrecondition(
        "this process has joined a job that was there before it, and can begin no other one. Call "
        "hvd.init() once.");
  }
  state->world = MakeSoloWorld();  // of all processes that were started together
  state->membership = std::make_unique<LauncherMembership>(membership, endpoints.rank);
  AwaitRoster(making, endpoints.rank, {}, state);
  state->joining = making;
  return Status::Ok();
}

// Connects all processes that were started together. In an elastic job some may fail meanwhile:
// then the job continues without them, and `engine` stays null until the next roster.
Status MeetFirst(const Making& making, int rank, World* world, State* state,
                 std::shared_ptr<Engine>* engine) TFHVD_REQUIRES(state->lifecycle) {
  StartMonitor monitor(state->membership.get(), making.config, rank);
  const Status met = MakeEngine(making, world, &monitor, nullptr, engine);
  if (met.ok()) return met;
  world->SetWaitMonitor(nullptr);
  if (met.code() != StatusCode::kAborted || !monitor.Continues()) return met;
  AwaitRoster(making, rank, RanksOf(*world), state);
  return Status::Ok();
}

}  // namespace

Status InitProcess(const std::string& installed_nccl, const std::vector<int>& ranks,
                   const Identity& identity, const TcpEndpoints& endpoints, int membership) {
  State& state = TheState();
  MutexLock lifecycle(&state.lifecycle);
  if (ProcessEngine() != nullptr || JobIsElastic()) return Status::Ok();

  Making making;
  making.installed_nccl = installed_nccl;
  making.identity = identity;
  TFHVD_RETURN_IF_ERROR(ReadConfig(&making.config, &making.warnings));
  if (membership >= 0) TFHVD_RETURN_IF_ERROR(SetFailpoints(endpoints.rank, &making.config, &state));
  const bool elastic = membership >= 0 && state.world == nullptr;
  if (elastic) state.listener = Fd(fcntl(endpoints.listener, F_DUPFD_CLOEXEC, 0));
  if (membership >= 0 && !endpoints.exists()) {
    return BeginToJoin(making, endpoints, membership, &state);
  }
  World* world = nullptr;
  TFHVD_RETURN_IF_ERROR(FindWorld(making.config, ranks, endpoints, &state, &world));
  std::shared_ptr<Engine> engine;
  std::shared_ptr<ElasticJob> job;
  if (!elastic || !ranks.empty()) {
    TFHVD_RETURN_IF_ERROR(MakeEngine(making, world, nullptr, nullptr, &engine));
  } else {
    state.membership = std::make_unique<LauncherMembership>(membership, endpoints.rank);
    TFHVD_RETURN_IF_ERROR(MeetFirst(making, endpoints.rank, world, &state, &engine));
    if (engine == nullptr) return Status::Ok();
    Roster roster;
    roster.rank = endpoints.rank;
    roster.members = RanksOf(*world);
    const Topology& topology = engine->topology();
    const Log log(making.config.log_level, topology.rank,
                  topology.hosts[static_cast<size_t>(topology.rank)]);
    job = MakeElasticJob(making, std::move(roster), engine, log, &state);
  }
  MutexLock lock(&state.mutex);
  if (job == nullptr) state.engine = std::move(engine);
  state.elastic = std::move(job);
  state.is_elastic.store(state.elastic != nullptr);
  return Status::Ok();
}

void PassFailpoint(Failpoint point) {
  State& state = TheState();
  Failpoints failpoints;
  {
    const MutexLock lock(&state.mutex);
    failpoints = state.failpoints;
  }
  failpoints.Hit(point);
}

Status BeginRehearsal(const Place& place, bool* begun) {
  State& state = TheState();
  MutexLock lifecycle(&state.lifecycle);
  *begun = state.joining.has_value() && state.joining->config.rehearse;
  if (!*begun) return Status::Ok();
  Making making = *state.joining;
  making.warnings.clear();
  making.config.timeline.clear();
  making.config.failpoints = {};
  Roster alone;
  alone.members = {0};
  std::shared_ptr<Engine> engine;
  World* world = nullptr;  // the engine's own
  TFHVD_RETURN_IF_ERROR(MakeEngineOfRoster(making, -1, alone, nullptr, nullptr, &engine, &world));
  MutexLock lock(&state.mutex);
  state.rehearsal = std::move(engine);
  state.place = place;
  return Status::Ok();
}

std::optional<Place> RehearsedPlace() {
  MutexLock lock(&TheState().mutex);
  return TheState().place;
}

void EndRehearsal() {
  State& state = TheState();
  MutexLock lifecycle(&state.lifecycle);
  std::shared_ptr<Engine> engine;
  {
    MutexLock lock(&state.mutex);
    engine = state.rehearsal;
  }
  if (engine == nullptr) return;
  engine->Leave("");
  (void)engine->WaitUntilOver(std::numeric_limits<double>::infinity());
  MutexLock lock(&state.mutex);
  state.rehearsal.reset();
  state.place.reset();
}

Status ShutdownProcess(const std::string& reason) {
  EndRehearsal();
  State& state = TheState();
  MutexLock lifecycle(&state.lifecycle);
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  if (job != nullptr) job->Stop();
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) {  // it was in no job, or waited for admission
    MutexLock lock(&state.mutex);
    state.is_elastic.store(false);
    state.elastic.reset();
    return Status::Ok();
  }
  // The settings of the engine, because the environment may have changed.
  const Config& config = engine->config();
  config.failpoints.Hit(Failpoint::kLeaving);
  engine->Leave(reason);
  bool over;
  if (reason.empty()) {
    const Topology& topology = engine->topology();
    const Log log(config.log_level, topology.rank,
                  topology.hosts[static_cast<size_t>(topology.rank)]);
    over = engine->WaitUntilOver(config.stall_check ? config.stall_check_time
                                                    : std::numeric_limits<double>::infinity());
    if (!over) {
      log.Warning("This rank has finished and waits for the other ranks to finish as well.");
      over = engine->WaitUntilOver(std::numeric_limits<double>::infinity());
    }
  } else {
    over = engine->WaitUntilOver(config.shutdown_timeout);
  }
  if (!over) {
    return Status::Aborted("some ranks did not acknowledge within " +
                           std::to_string(config.shutdown_timeout) + " s that rank " +
                           std::to_string(engine->topology().rank) + " leaves the job");
  }
  config.failpoints.Hit(Failpoint::kLeft);
  if (!engine->lost().ok()) {
    state.lost = true;
  } else if (engine->topology().size == state.world->size()) {
    state.lost = false;  // every process was in this job, and has left
  }
  state.world->SetWaitMonitor(nullptr);
  for (auto& [ranks, part] : state.parts) {
    if (part != nullptr) part->SetWaitMonitor(nullptr);
  }
  MutexLock lock(&state.mutex);
  state.is_elastic.store(false);
  state.elastic.reset();
  state.engine.reset();
  state.pool.Trim();
  state.blocks.Trim();
  return Status::Ok();
}

Status FinalizeProcess(bool* ended) {
  State& state = TheState();
  MutexLock lifecycle(&state.lifecycle);
  *ended = !state.lost;
  if (state.world == nullptr || state.lost) return Status::Ok();
  PassFailpoint(Failpoint::kClosing);
  Status status;
  for (auto& [ranks, part] : state.parts) {
    if (part != nullptr && status.ok()) status = part->Close();
  }
  state.parts.clear();
  if (status.ok()) status = state.world->Close();
  state.world.reset();
  return status;
}

std::shared_ptr<Engine> ProcessEngine() {
  State& state = TheState();
  MutexLock lock(&state.mutex);
  if (state.rehearsal != nullptr) return state.rehearsal;
  return state.elastic != nullptr ? state.elastic->engine() : state.engine;
}

EntryId SubmitToJob(const std::shared_ptr<Engine>& engine, Entry&& entry) {
  const std::shared_ptr<ElasticJob> job = TheElasticJob(engine);
  return job != nullptr ? job->Submit(std::move(entry)) : engine->Submit(std::move(entry));
}

void CancelInJob(const std::shared_ptr<Engine>& engine, EntryId id) {
  if (const std::shared_ptr<ElasticJob> job = TheElasticJob(engine)) return job->Cancel(id);
  if (engine != nullptr) engine->Cancel(id);
}

bool JobIsElastic() { return TheState().is_elastic.load(std::memory_order_acquire); }

int JobGeneration() {
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  return job == nullptr ? 0 : job->generation();
}

std::optional<int> WaitForGeneration(int generation, double seconds) {
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  if (job == nullptr) return std::nullopt;
  return job->WaitForGeneration(generation, NanosecondsOf(seconds));
}

std::optional<int> RollBackInJob(double seconds) {
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  if (job == nullptr) return std::nullopt;
  return job->RollBack(NanosecondsOf(seconds));
}

int JobAdmitted() {
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  return job == nullptr ? 0 : job->admitted();
}

int RanksWaiting() {
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  return job == nullptr ? 0 : job->waiting();
}

bool WaitUntilJobIsIdle(double seconds) {
  const std::shared_ptr<ElasticJob> job = TheElasticJob();
  return job == nullptr || job->WaitUntilIdle(NanosecondsOf(seconds));
}

MemoryPool* ProcessMemoryPool() { return &TheState().pool; }

BlockCache* ProcessBlockCache() { return &TheState().blocks; }

Status NotInitialized() {
  if (JobGeneration() < 0) {
    return Status::FailedPrecondition(
        "This rank has come to an elastic job that has not let it in yet. A function of tfhvd that "
        "is called in Python waits for that, and a collective in a graph that was loaded cannot: "
        "run the graph in a function of hvd.elastic.run.");
  }
  return Status::FailedPrecondition("tfhvd has not been initialized. Call hvd.init() first.");
}

}  // namespace tfhvd
