// AgreeOn: a request to all ranks that is no collective on tensors.
#pragma once

#include <cstdint>

#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Adds a process set, removes one, or joins one, together with all ranks, and waits for the result;
// see Decision::number. This function chooses the request's name. Blocks, so it must not be called
// within an entry's `done`.
Status AgreeOn(Request request, int64_t* number);

}  // namespace tfhvd
