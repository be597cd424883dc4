#include "cc/backends/mpi/mpi_error.h"

namespace tfhvd {

std::string MpiErrorText(const MpiApi& api, int error) {
  char text[512];
  api.ErrorText(error, text, static_cast<int>(sizeof text));
  return text;
}

Status MessageFailed(const MpiApi& api, int error, const std::string& call, int rank,
                     const std::string& doing, int peer) {
  const std::string whom = peer < 0 ? "another rank" : "rank " + std::to_string(peer);
  return Status::Aborted("MPI failed in " + call + " on rank " + std::to_string(rank) + ", " +
                         doing + " " + whom + ": " + MpiErrorText(api, error) +
                         ". The process of " + whom +
                         " may have died, or its host may be cut off; its own output may say why.");
}

}  // namespace tfhvd
