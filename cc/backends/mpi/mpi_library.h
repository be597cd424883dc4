// MpiLibrary: an MPI that a process may use if tfhvd was built for every MPI: in a binary wheel.
#pragma once

#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/status.h"

namespace tfhvd {

struct MpiLibrary {
  MpiAbi abi;
  std::string file;  // a path, or a name for the system's loader to find
};

// Lists the possible libraries in the order in which to try them: folder by folder; if the
// launcher's MPI is known, its libraries come before all others. An empty folder means the loader's
// search.
std::vector<MpiLibrary> MpiLibrariesIn(const std::vector<std::string>& folders, MpiAbi launched);

// Returns the folders with the libraries of the launcher's MPI. `programs`: the paths of this
// process's ancestors, its parent first; the nearest launcher of MPI counts. Empty if there is
// none.
std::vector<std::string> FoldersOfLauncher(const std::vector<std::string>& programs);

// Opens an MPI, visible to the whole process, and returns its interface: the one that the process
// has opened already, otherwise the launcher's, otherwise the one in the folder `environment`,
// otherwise the one that the loader finds. Returns kUnavailable, with advice, if there is none.
Status OpenMpiLibrary(const std::string& environment, MpiAbi launched, MpiAbi* abi);

}  // namespace tfhvd
