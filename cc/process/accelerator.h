// Accelerator: this process's device and backend for tensors on GPUs.
#pragma once

#include <string>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"

namespace tfhvd {

// Returns null for both parts if there is no GPU. `installed_nccl`: see LoadNccl. GpuOf chooses the
// GPU of a rank that takes part without ever having had a tensor on one.
Accelerator MakeAccelerator(const Config& config, const std::string& installed_nccl,
                            const Topology& topology, const Log& log);

// Report whether there is a GPU, and whether there is NCCL. `description`: the versions, or the
// reason why not.
Status ProbeCuda(const Config& config, std::string* description);
Status ProbeNccl(const Config& config, const std::string& installed_nccl, std::string* description);

}  // namespace tfhvd
