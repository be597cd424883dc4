// MakeLockedStep: makes this rank's form of a step that the coordinator has locked: its requests
// and the decisions on them, which it knows by number.
#pragma once

#include "cc/base/status.h"
#include "cc/flow/locked_step.h"
#include "cc/flow/messages.h"
#include "cc/negotiate/response_cache.h"

namespace tfhvd {

// Returns an error if a number is unknown. REQUIRES: the agreement locks a step.
Status MakeLockedStep(const Agreement& agreement, const ResponseCache& known, LockedStep* step);

}  // namespace tfhvd
