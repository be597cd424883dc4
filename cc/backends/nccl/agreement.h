// What ranks must know of each other before they can use NCCL together.
#pragma once

#include <string>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/device/cuda_device.h"

namespace tfhvd {

// Collective: ok where every rank's `mine` is ok, else a bad one, with its rank, on all: the first
// that is not what follows from another rank's (kAborted).
Status AgreeOnStatus(Communicator* host, const Status& mine);

// Collective: fails on all ranks where two have the same GPU.
Status CheckEachHasItsGpu(Communicator* host, const CudaDevice& device);

}  // namespace tfhvd
