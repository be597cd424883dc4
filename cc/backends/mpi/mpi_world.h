// The job that mpirun (or srun) started. MPI is begun here if nobody has, and ended by Close if it
// was begun here.
//
// Two communicators of all its ranks, one for control messages and one for data, carry everything;
// control planes and communicators are told apart by tags that are never used again. So opening
// one costs MPI nothing, and messages left over from a failed one meet nobody.
#pragma once

#include <memory>
#include <string>

#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/comm/world.h"

namespace tfhvd {

// Meets the job. Fails, saying what to type, where libtfhvd_mpi.so or its MPI cannot be loaded, was
// begun without threads, has ended, or is not the MPI whose mpirun started the process.
Status ConnectMpiWorld(const Config& config, const LaunchHints& hints,
                       std::unique_ptr<World>* world);

// Whether there is an MPI to use, and which ("Open MPI v5.0.11"); begins nothing.
Status ProbeMpi(std::string* description);

}  // namespace tfhvd
