// MpiError: MPI's error codes as texts and Status.
#pragma once

#include <string>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/base/status.h"

namespace tfhvd {

// Returns "MPI_ERR_TRUNCATE: message truncated", as MPI describes the code.
std::string MpiErrorText(const MpiApi& api, int error);

// Returns kAborted: a message failed on `rank`, which was `doing` something to or from rank `peer`
// of the job (-1: unknown).
Status MessageFailed(const MpiApi& api, int error, const std::string& call, int rank,
                     const std::string& doing, int peer);

}  // namespace tfhvd
