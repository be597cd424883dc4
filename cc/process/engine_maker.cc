#include "cc/process/engine_maker.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/backends/tcp/tcp_world.h"
#include "cc/base/log.h"
#include "cc/process/accelerator.h"
#include "cc/rendezvous/transport_selector.h"

namespace tfhvd {
namespace {

// The engine of a later generation of an elastic job, with the world that it needs.
struct Generation {
  ~Generation() {
    engine.reset();
    // Tells the other ranks that this one leaves; does not wait for failed ranks.
    if (world != nullptr) (void)world->Close();
  }

  std::unique_ptr<World> world;
  std::shared_ptr<Engine> engine;
};

}  // namespace

Status MakeEngine(const Making& making, World* world, WaitMonitor* monitor,
                  const ElasticJob::Reconcile& reconcile, std::shared_ptr<Engine>* engine) {
  Config config = making.config;
  world->SetWaitMonitor(monitor);
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> communicator;
  TFHVD_RETURN_IF_ERROR(world->OpenControlPlane(&control));
  config.failpoints.Hit(Failpoint::kControlPlaneOpen);
  TFHVD_RETURN_IF_ERROR(world->OpenCommunicator(RanksOf(*world), &communicator));
  config.failpoints.Hit(Failpoint::kCommunicatorOpen);
  Topology topology;
  TFHVD_RETURN_IF_ERROR(
      ExchangeHandshakes(communicator.get(), &config, &topology, making.identity));
  topology.generation = making.generation;
  config.failpoints.Hit(Failpoint::kHandshakesExchanged);

  const Log log(config.log_level, topology.rank,
                topology.hosts[static_cast<size_t>(topology.rank)]);
  if (topology.rank == 0) {
    for (const std::string& warning : making.warnings) log.Warning(warning);
  }
  if (reconcile) TFHVD_RETURN_IF_ERROR(reconcile(communicator.get()));
  TFHVD_RETURN_IF_ERROR(SelectTransport(config, topology, log, world, &communicator, &control));
  config.failpoints.Hit(Failpoint::kTransportSelected);
  CommunicatorFactory open = MakeCommunicatorFactory(config, topology, log, world);
  Accelerator accelerator = MakeAccelerator(config, making.installed_nccl, topology, log);
  *engine =
      std::make_shared<Engine>(config, log, std::move(topology), std::move(control),
                               std::move(communicator), std::move(accelerator), std::move(open));
  world->SetWaitMonitor((*engine)->wait_monitor());
  config.failpoints.Hit(Failpoint::kEngineMade);
  return Status::Ok();
}

Status MakeEngineOfRoster(const Making& making, int listener, const Roster& roster,
                          WaitMonitor* monitor, const ElasticJob::Reconcile& reconcile,
                          std::shared_ptr<Engine>* engine, World** world) {
  const auto generation = std::make_shared<Generation>();
  if (roster.size() == 1) {
    generation->world = MakeSoloWorld();
  } else {
    making.config.failpoints.Hit(Failpoint::kMeshOpening);
    TcpEndpoints endpoints;
    endpoints.rank = roster.rank;
    endpoints.addresses = roster.addresses;
    endpoints.token = roster.token;
    endpoints.listener = fcntl(listener, F_DUPFD_CLOEXEC, 0);
    TFHVD_RETURN_IF_ERROR(ConnectTcpWorld(making.config, endpoints, &generation->world));
    making.config.failpoints.Hit(Failpoint::kMeshOpen);
  }
  Making later = making;
  later.generation = roster.generation;
  // The engine before this one has written a file of that name.
  std::string* const timeline = &later.config.timeline;
  if (!timeline->empty()) *timeline += "." + std::to_string(roster.generation);
  TFHVD_RETURN_IF_ERROR(
      MakeEngine(later, generation->world.get(), monitor, reconcile, &generation->engine));
  *engine = std::shared_ptr<Engine>(generation, generation->engine.get());
  *world = generation->world.get();
  return Status::Ok();
}

}  // namespace tfhvd
