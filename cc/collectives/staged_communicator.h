// Collectives on an accelerator's memory by way of the host: tensors are copied there, reduced, and
// copied back. For what the accelerator's own library cannot do, and where there is none. Slow, and
// equal to the bit with collectives on the host.
#pragma once

#include <memory>

#include "cc/comm/communicator.h"
#include "cc/device/device.h"

namespace tfhvd {

// Both must outlive the result. Its calls block until they are done.
std::unique_ptr<Communicator> MakeStagedCommunicator(Device* device, Communicator* host);

}  // namespace tfhvd
