// MpiLoader: opens libtfhvd_mpi.so from the folder of the library that contains this code; in a
// binary wheel, the one for the MPI that this process uses.
#pragma once

#include <string>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/base/status.h"

namespace tfhvd {

// Returns the table, which lives until the process ends; further calls return the same one. Any
// thread. Returns kUnavailable, with advice, if there is no such library, it does not fit this
// core, or its MPI is missing.
Status LoadMpiApi(const MpiApi** api);

// Returns whether tfhvd was built for every MPI, and not for a single one.
bool ServesEveryMpi();

// Like LoadMpiApi, from a given file: for tests.
Status LoadMpiApiFrom(const std::string& file, const MpiApi** api);

}  // namespace tfhvd
