// What all ranks do together that is no collective on tensors.
#pragma once

#include <cstdint>

#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Has all ranks join a process set, or make or remove one, and waits until they have; see
// Decision::number for the result. The request's name is chosen here. Blocks: not within an entry's
// `done`.
Status AgreeOn(Request request, int64_t* number);

}  // namespace tfhvd
