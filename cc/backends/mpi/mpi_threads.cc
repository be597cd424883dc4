#include "cc/backends/mpi/mpi_threads.h"

#include "cc/backends/mpi/mpi_api.h"

namespace tfhvd {

Status CheckMpiThreads(const std::string& library, bool ours, int level, std::string* warning) {
  warning->clear();
  if (level >= kMpiThreadMultiple) return Status::Ok();
  if (!ours) {
    return Status::FailedPrecondition(
        "MPI was started in this process without support for several threads, which tfhvd needs "
        "because it calls MPI from a thread of its own. Expected: MPI_THREAD_MULTIPLE. Call "
        "hvd.init() before the other package starts MPI, or let that one ask for it: "
        "`mpi4py.rc.thread_level = \"multiple\"` before `from mpi4py import MPI`.");
  }
  if (level < kMpiThreadSerialized) {
    return Status::Unavailable(
        library +
        " cannot be called from tfhvd's background thread. Received: less than "
        "MPI_THREAD_SERIALIZED. Expected: an MPI that was built with thread support.");
  }
  *warning = library +
             " lets only one thread at a time call it (MPI_THREAD_SERIALIZED), and tfhvd's "
             "background thread does so at any time from hvd.init() to hvd.shutdown(). Meanwhile "
             "nothing else in this program may call MPI, neither mpi4py nor another library. If "
             "something has to, use an MPI that was built with MPI_THREAD_MULTIPLE.";
  return Status::Ok();
}

}  // namespace tfhvd
