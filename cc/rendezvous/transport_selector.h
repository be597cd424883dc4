// TransportSelector: which transport the ranks of this job use, the launcher's or a faster one.
// Ranks of one host use shared memory. Several hosts with several ranks each use shared memory
// within a host, and the launcher's transport between hosts. All others use the launcher's
// transport. Ranks can vote over each of them.
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

// Collective over all ranks. Replaces the communicator of all ranks, which `world` opened, and the
// control plane by faster ones if possible and wanted.
Status SelectTransport(const Config& config, const Topology& topology, const Log& log, World* world,
                       std::unique_ptr<Communicator>* communicator,
                       std::unique_ptr<ControlPlane>* control);

// Makes a factory for the communicators of process sets. It opens them out of `world`, which must
// outlive it, and selects transports in the same way: a set may be on fewer hosts than the job.
CommunicatorFactory MakeCommunicatorFactory(const Config& config, const Topology& topology,
                                            const Log& log, World* world);

}  // namespace tfhvd
