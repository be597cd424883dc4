// What this process can do with tensors on GPUs.
#pragma once

#include <string>

#include "cc/base/config.h"
#include "cc/base/log.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"

namespace tfhvd {

// Both parts null where there is no GPU. `installed_nccl`: see LoadNccl. GpuOf chooses the
// GPU of a rank that takes part without ever having had a tensor there.
Accelerator MakeAccelerator(const Config& config, const std::string& installed_nccl,
                            const Topology& topology, const Log& log);

// Whether there is a GPU, and whether there is NCCL; the versions, or why not.
Status ProbeCuda(const Config& config, std::string* description);
Status ProbeNccl(const Config& config, const std::string& installed_nccl, std::string* description);

}  // namespace tfhvd
