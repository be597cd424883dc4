// How the engine of a job, or of a generation of an elastic one, is made: of settings, a world, and
// what this process has.
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

// What a generation's engine is made of, but for its members.
struct Making {
  Config config;
  std::vector<std::string> warnings;  // said by rank 0 of the first generation
  std::string installed_nccl;
  Identity identity;
  int generation = 0;
};

// Meets all ranks of the world, which outlives the engine. `monitor`: asked in every wait until the
// engine is there; may be null. `reconcile`: what the ranks do together before the engine takes
// entries; may be empty.
Status MakeEngine(const Making& making, World* world, WaitMonitor* monitor,
                  const ElasticJob::Reconcile& reconcile, std::shared_ptr<Engine>* engine);

// Meets all members of a roster over TCP. `listener`: a descriptor that listens where the roster
// says of this process; copied. `world`: what the engine is made of, and owns.
Status MakeEngineOfRoster(const Making& making, int listener, const Roster& roster,
                          WaitMonitor* monitor, const ElasticJob::Reconcile& reconcile,
                          std::shared_ptr<Engine>* engine, World** world);

}  // namespace tfhvd
