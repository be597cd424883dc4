#include "cc/process/backend_reports.h"

#include "cc/backends/mpi/mpi_world.h"
#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/process/accelerator.h"

namespace tfhvd {

std::vector<BackendReport> ReportBackends(const std::string& installed_nccl) {
  std::vector<BackendReport> reports;
  reports.push_back({"inproc", true, "one process alone"});
  reports.push_back({"tcp", true, "tfhvdrun --transport tcp"});
  std::string description;
  const Status mpi = ProbeMpi(&description);
  reports.push_back({"shm", true, "ranks of one host through shared memory"});
  reports.push_back({"mpi", mpi.ok(), mpi.ok() ? description : mpi.message()});
  reports.push_back(
      {"hierarchical", mpi.ok(), mpi.ok() ? "shm within hosts, mpi across" : "it needs mpi"});
  Config config;
  std::vector<std::string> ignored;
  const Status read = ReadConfig(&config, &ignored);
  const Status cuda = read.ok() ? ProbeCuda(config, &description) : read;
  reports.push_back({"cuda", cuda.ok(), cuda.ok() ? description : cuda.message()});
  const Status nccl = read.ok() ? ProbeNccl(config, installed_nccl, &description) : read;
  reports.push_back({"nccl", nccl.ok(), nccl.ok() ? description : nccl.message()});
  return reports;
}

bool HasGpus() {
  Config config;
  std::vector<std::string> ignored;
  std::string description;
  return ReadConfig(&config, &ignored).ok() && ProbeCuda(config, &description).ok();
}

}  // namespace tfhvd
