// Which MPI a process is to use, where tfhvd was built for whichever there is: a binary wheel.
#pragma once

#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/status.h"

namespace tfhvd {

struct MpiLibrary {
  MpiAbi abi;
  std::string file;  // a path, or a name that the system's loader is to find
};

// What may be there, in the order in which to try. Folder by folder; where it is known which MPI
// has started this process, its libraries come before all others. The empty folder stands for the
// loader's own search.
std::vector<MpiLibrary> MpiLibrariesIn(const std::vector<std::string>& folders, MpiAbi launched);

// Where the MPI of a launcher has its libraries. `programs`: the paths of what started this
// process, its parent first; the nearest that is a launcher of MPI counts. Empty without one.
std::vector<std::string> FoldersOfLauncher(const std::vector<std::string>& programs);

// Opens an MPI for all of the process to see, and says whose interface it has: the one that the
// process has already, else the launcher's own, else that of the folder `environment`, else what
// the loader finds. Unavailable, with what to type, where there is none.
Status OpenMpiLibrary(const std::string& environment, MpiAbi launched, MpiAbi* abi);

}  // namespace tfhvd
