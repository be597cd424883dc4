// BackendReport: a backend that this process could use, whether it is in a job or not. For
// `tfhvdrun --check-build` and the doctor.
#pragma once

#include <string>
#include <vector>

namespace tfhvd {

// One backend: whether it is available, and its version or the reason why not.
struct BackendReport {
  std::string name;
  bool available = false;
  std::string detail;
};
std::vector<BackendReport> ReportBackends(const std::string& installed_nccl);

// Returns whether this process has a GPU, by the settings of the environment.
bool HasGpus();

}  // namespace tfhvd
