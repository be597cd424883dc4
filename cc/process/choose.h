// Which communicator carries the collectives of this job.
#pragma once

#include <memory>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/topology.h"

namespace tfhvd {

// Collective over `communicator`, which every job has: replaces it by a faster one where that is
// possible and wanted.
Status ChooseCommunicator(const Config& config, const Topology& topology, const Log& log,
                          std::unique_ptr<Communicator>* communicator);

}  // namespace tfhvd
