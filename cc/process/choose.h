// By which means the ranks of this job talk: what their starter gave them, or something faster.
#pragma once

#include <memory>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/control_plane.h"
#include "cc/comm/topology.h"

namespace tfhvd {

// Collective over `communicator`, which every job has: replaces it, and the control plane, by
// faster ones where that is possible and wanted.
Status ChooseMeans(const Config& config, const Topology& topology, const Log& log,
                   std::unique_ptr<Communicator>* communicator,
                   std::unique_ptr<ControlPlane>* control);

}  // namespace tfhvd
