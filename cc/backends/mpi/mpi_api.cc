#include "cc/backends/mpi/mpi_api.h"

#include <dlfcn.h>
#include <mpi.h>

#include <cstring>
#include <string>

namespace {

using tfhvd::MpiHandle;

// MPI's handles are pointers in one implementation and integers in another.
template <typename T>
MpiHandle Wrap(T handle) {
  static_assert(sizeof(T) <= sizeof(MpiHandle), "an MPI handle fits into MpiHandle");
  MpiHandle wrapped = 0;
  std::memcpy(&wrapped, &handle, sizeof handle);
  return wrapped;
}
template <typename T>
T Unwrap(MpiHandle wrapped) {
  T handle;
  std::memcpy(&handle, &wrapped, sizeof handle);
  return handle;
}
MPI_Comm Comm(MpiHandle comm) { return Unwrap<MPI_Comm>(comm); }

// Returns the first line of MPI's description of itself, up to the details of its build.
const char* Library() {
  static const std::string text = [] {
    char all[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(all, &length);
    std::string line(all);
    line = line.substr(0, line.find_first_of(",\n"));
    for (char& c : line) c = c == '\t' ? ' ' : c;
    const std::string label = "MPICH Version:";
    if (line.compare(0, label.size(), label) == 0) {
      const size_t version = line.find_first_not_of(' ', label.size());
      line = "MPICH " + (version == std::string::npos ? "" : line.substr(version));
    }
    return line;
  }();
  return text.c_str();
}

const char* LibraryFile() {
  Dl_info info;
  void* const function = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
  return function != nullptr && dladdr(function, &info) != 0 && info.dli_fname != nullptr
             ? info.dli_fname
             : "";
}

void ErrorText(int error, char* text, int size) {
  char all[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(error, all, &length);
  std::strncpy(text, all, static_cast<size_t>(size) - 1);
  text[size - 1] = '\0';
}

int Initialized(int* flag) { return MPI_Initialized(flag); }
int Finalized(int* flag) { return MPI_Finalized(flag); }

int FromMpiLevel(int level) {
  if (level == MPI_THREAD_MULTIPLE) return tfhvd::kMpiThreadMultiple;
  return level == MPI_THREAD_SERIALIZED ? tfhvd::kMpiThreadSerialized : 0;
}

// While an ErrorsReturn lives, MPI returns the errors of calls on MPI_COMM_WORLD, at which it would
// end the process by default. The destructor restores the program's error handler: a package that
// began MPI may rely on it.
class ErrorsReturn {
 public:
  ErrorsReturn() {
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &chosen_);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~ErrorsReturn() {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, chosen_);
    const bool built_in = chosen_ == MPI_ERRORS_ARE_FATAL || chosen_ == MPI_ERRORS_RETURN;
    if (!built_in) MPI_Errhandler_free(&chosen_);
  }
  ErrorsReturn(const ErrorsReturn&) = delete;
  ErrorsReturn& operator=(const ErrorsReturn&) = delete;

 private:
  MPI_Errhandler chosen_ = MPI_ERRHANDLER_NULL;
};

// If tfhvd began MPI, MPI returns errors permanently, on both predefined communicators: MPI raises
// the errors of calls without a communicator on one of these.
int InitThread(int* provided) {
  int level = 0;
  int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  *provided = FromMpiLevel(level);
  for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  }
  return error;
}

int QueryThread(int* provided) {
  int level = 0;
  const int error = MPI_Query_thread(&level);
  *provided = FromMpiLevel(level);
  return error;
}

// If Open MPI reports lost peers (mpi_ft_enable), all ranks agree in MPI_Finalize on which have
// failed. Across hosts with several ranks each, release 5.0.11 waited there for up to two minutes
// in one job of ten, and failed in one of thirty, although no rank had failed. tfhvd ends MPI when
// all ranks have reported that they are done, so no agreement is needed.
int Finalize() {
  void* const reports_losses = dlsym(RTLD_DEFAULT, "ompi_ftmpi_enabled");
  if (reports_losses != nullptr) *static_cast<bool*>(reports_losses) = false;
  return MPI_Finalize();
}

int Rank(int* rank) {
  const ErrorsReturn errors_return;
  return MPI_Comm_rank(MPI_COMM_WORLD, rank);
}

int Size(int* size) {
  const ErrorsReturn errors_return;
  return MPI_Comm_size(MPI_COMM_WORLD, size);
}

int CreateComm(const int* ranks, int count, int tag, MPI_Comm* comm) {
  MPI_Group everyone = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  int error = MPI_Comm_group(MPI_COMM_WORLD, &everyone);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Group_incl(everyone, count, ranks, &some);
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, comm);
    MPI_Group_free(&some);
  }
  MPI_Group_free(&everyone);
  return error;
}

int OpenComm(const int* ranks, int count, int tag, MpiHandle* comm) {
  const ErrorsReturn errors_return;
  MPI_Comm ours = MPI_COMM_NULL;
  const int error =
      count == 0 ? MPI_Comm_dup(MPI_COMM_WORLD, &ours) : CreateComm(ranks, count, tag, &ours);
  if (error != MPI_SUCCESS) return error;
  *comm = Wrap(ours);
  return MPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN);
}

int FreeComm(MpiHandle* comm) {
  MPI_Comm ours = Comm(*comm);
  return MPI_Comm_free(&ours);
}

int LargestTag(MpiHandle comm, int* tag) {
  void* value = nullptr;
  int found = 0;
  const int error = MPI_Comm_get_attr(Comm(comm), MPI_TAG_UB, &value, &found);
  // The least value that the standard allows.
  *tag = found != 0 ? *static_cast<int*>(value) : 32767;
  return error;
}

int Isend(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request) {
  MPI_Request r = MPI_REQUEST_NULL;
  const int error = MPI_Isend(data, bytes, MPI_BYTE, to, tag, Comm(comm), &r);
  *request = Wrap(r);
  return error;
}

int Issend(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request) {
  MPI_Request r = MPI_REQUEST_NULL;
  const int error = MPI_Issend(data, bytes, MPI_BYTE, to, tag, Comm(comm), &r);
  *request = Wrap(r);
  return error;
}

int Irecv(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* request) {
  MPI_Request r = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(data, bytes, MPI_BYTE, from, tag, Comm(comm), &r);
  *request = Wrap(r);
  return error;
}

int Test(MpiHandle* request, int* done) {
  MPI_Request r = Unwrap<MPI_Request>(*request);
  const int error = MPI_Test(&r, done, MPI_STATUS_IGNORE);
  *request = Wrap(r);
  return error;
}

int Cancel(MpiHandle* request) {
  MPI_Request r = Unwrap<MPI_Request>(*request);
  return MPI_Cancel(&r);
}

int Iprobe(int source, int tag, MpiHandle comm, int* found, int* from, int* bytes) {
  MPI_Status status;
  const int rank = source == tfhvd::kMpiAnySource ? MPI_ANY_SOURCE : source;
  const int error = MPI_Iprobe(rank, tag, Comm(comm), found, &status);
  if (error != MPI_SUCCESS || *found == 0) return error;
  *from = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, bytes);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tfhvd::MpiApi* tfhvd_mpi_api() {
  static const tfhvd::MpiApi api = {tfhvd::kMpiApiVersion,
                                    Library,
                                    LibraryFile,
                                    ErrorText,
                                    Initialized,
                                    Finalized,
                                    InitThread,
                                    QueryThread,
                                    Finalize,
                                    Rank,
                                    Size,
                                    OpenComm,
                                    FreeComm,
                                    LargestTag,
                                    Isend,
                                    Issend,
                                    Irecv,
                                    Test,
                                    Cancel,
                                    Iprobe};
  return &api;
}
