// MakeEngine: makes the engine of a job, or of one generation of an elastic job, from settings, a
// world, and the devices of this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/comm/membership.h"
#include "cc/comm/wait_monitor.h"
#include "cc/comm/world.h"
#include "cc/elastic/elastic_job.h"
#include "cc/engine/engine.h"
#include "cc/rendezvous/handshake.h"

namespace tfhvd {

// The ingredients of an engine that do not depend on the members of its generation.
struct Making {
  Config config;
  std::vector<std::string> warnings;  // rank 0 of the first generation logs them
  std::string installed_nccl;
  Identity identity;
  int generation = 0;
};

// Connects all ranks of the world, which outlives the engine. `monitor`: called in every wait until
// the engine exists; may be null. `reconcile`: called by all ranks together before the engine takes
// entries; may be empty.
Status MakeEngine(const Making& making, World* world, WaitMonitor* monitor,
                  const ElasticJob::Reconcile& reconcile, std::shared_ptr<Engine>* engine);

// Connects all members of a roster over TCP. `listener`: a descriptor that listens at the address
// that the roster has for this process; copied. `world`: receives the world of the engine, which
// owns it.
Status MakeEngineOfRoster(const Making& making, int listener, const Roster& roster,
                          WaitMonitor* monitor, const ElasticJob::Reconcile& reconcile,
                          std::shared_ptr<Engine>* engine, World** world);

}  // namespace tfhvd
