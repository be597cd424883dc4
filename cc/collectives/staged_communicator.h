// StagedCommunicator: collectives on an accelerator's memory through the host: tensors are copied
// there, reduced, and copied back. For collectives that the accelerator's library cannot do, and
// for accelerators without a library. Slow, and equal to the bit with collectives on the host.
#pragma once

#include <memory>

#include "cc/comm/communicator.h"
#include "cc/device/device.h"

namespace tfhvd {

// Both must outlive the result. Its calls block until they are done.
std::unique_ptr<Communicator> MakeStagedCommunicator(Device* device, Communicator* host);

}  // namespace tfhvd
