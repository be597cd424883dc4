// MpiWorld: the job that mpirun (or srun) started. Begins MPI if the process has not, and in that
// case Close ends it.
//
// Two communicators of all ranks, one for control messages and one for data, carry everything.
// Control planes and communicators are distinguished by tags that are never used again. So opening
// one costs MPI nothing, and messages left over from a failed one are never received.
#pragma once

#include <memory>
#include <string>

#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/comm/world.h"

namespace tfhvd {

// Connects the job. Returns an error, with advice, if libtfhvd_mpi.so or its MPI cannot be loaded,
// or MPI was begun without threads, has ended, or is not the MPI whose mpirun started the process.
Status ConnectMpiWorld(const Config& config, const LaunchHints& hints,
                       std::unique_ptr<World>* world);

// Reports whether there is an MPI to use, and which ("Open MPI v5.0.11"); begins nothing.
Status ProbeMpi(std::string* description);

}  // namespace tfhvd
