// What MPI's error codes say to people.
#pragma once

#include <string>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/base/status.h"

namespace tfhvd {

// "MPI_ERR_TRUNCATE: message truncated", as the MPI describes the code.
std::string MpiErrorText(const MpiApi& api, int error);

// kAborted: a message failed on `rank`, which was `doing` something to or from rank `peer` of the
// job (-1: nobody knows which).
Status MessageFailed(const MpiApi& api, int error, const std::string& call, int rank,
                     const std::string& doing, int peer);

}  // namespace tfhvd
