// What this process could use, before it takes part in any job: for `tfhvdrun --check-build` and
// the doctor.
#pragma once

#include <string>
#include <vector>

namespace tfhvd {

// One line per backend: what there is, what is not, and why.
struct BackendReport {
  std::string name;
  bool available = false;
  std::string detail;
};
std::vector<BackendReport> ReportBackends(const std::string& installed_nccl);

// Whether this process has a GPU, by the settings of the environment.
bool HasGpus();

}  // namespace tfhvd
