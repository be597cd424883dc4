// Makes what this rank runs of a step that the coordinator has locked: its requests and what was
// decided of them, from what it knows by number.
#pragma once

#include "cc/base/status.h"
#include "cc/flow/locked_step.h"
#include "cc/flow/messages.h"
#include "cc/negotiate/response_cache.h"

namespace tfhvd {

// An error where some number is not known. REQUIRES: the agreement locks a step.
Status MakeLockedStep(const Agreement& agreement, const ResponseCache& known, LockedStep* step);

}  // namespace tfhvd
