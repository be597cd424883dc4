// By which transport the ranks of this job talk: what their launcher gave them, or something
// faster. Ranks of one host: shared memory. Several hosts with several ranks each: shared memory
// within a host, the launcher's transport across. Otherwise the launcher's transport. By any of
// them ranks can vote.
#pragma once

#include <memory>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/control_plane.h"
#include "cc/comm/topology.h"
#include "cc/comm/world.h"

namespace tfhvd {

// Collective over all ranks: replaces the communicator of all of them, which `world` opened, and
// the control plane by faster ones where that is possible and wanted.
Status SelectTransport(const Config& config, const Topology& topology, const Log& log, World* world,
                       std::unique_ptr<Communicator>* communicator,
                       std::unique_ptr<ControlPlane>* control);

// Opens the communicators of process sets, out of `world` (which must outlive the factory), by the
// same choice: a set may be on fewer hosts than the job.
CommunicatorFactory MakeCommunicatorFactory(const Config& config, const Topology& topology,
                                            const Log& log, World* world);

}  // namespace tfhvd
