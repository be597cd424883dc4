// RunCollective: the work of a plan that moves data, for each kind of collective: copy in, call,
// copy out.
//
// Used by the engine's thread only.
#pragma once

#include <vector>

#include "cc/base/status.h"
#include "cc/execute/plan_context.h"
#include "cc/execute/plan_memory.h"
#include "cc/flow/plan.h"

namespace tfhvd {

// Collective over the ranks of the plan. REQUIRES: GetMemory has filled `memory`, and no rank lacks
// any.
Status RunCollective(const PlanContext& context, const Plan& plan,
                     const std::vector<Agreed>& agreed, PlanMemory* memory);

}  // namespace tfhvd
