// Opens libtfhvd_mpi.so, which lies beside the library that this code is in; in a binary wheel, the
// one for the MPI that this process is to use.
#pragma once

#include <string>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/base/status.h"

namespace tfhvd {

// The table lives until the process ends; asking again gives the same. Any thread. Unavailable,
// with what to type, where there is no such library, or none that fits this core, or its MPI is
// missing.
Status LoadMpiApi(const MpiApi** api);

// Whether tfhvd was built for whichever MPI there is, and not for one.
bool ServesEveryMpi();

// As LoadMpiApi, from a given file: for tests.
Status LoadMpiApiFrom(const std::string& file, const MpiApi** api);

}  // namespace tfhvd
