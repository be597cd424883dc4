// Agreement: the facts that ranks must share before they can use NCCL together.
#pragma once

#include <string>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/device/cuda_device.h"

namespace tfhvd {

// Collective. Returns ok if every rank's `mine` is ok; otherwise all ranks get one of the errors,
// with its rank: the first that is not the consequence of another rank's error (kAborted).
Status AgreeOnStatus(Communicator* host, const Status& mine);

// Collective. Fails on all ranks if two of them have the same GPU.
Status CheckEachHasItsGpu(Communicator* host, const CudaDevice& device);

}  // namespace tfhvd
