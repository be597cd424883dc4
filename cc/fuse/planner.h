// The planner: which agreed tensors are carried by one call. A pure function of what every rank
// knows equally, so that every rank makes the same plans.
#pragma once

#include <vector>

#include "cc/flow/plan.h"

namespace tfhvd {

// Plans in the order of execution. Tensors are fused with others of their kind: allreduces of one
// type and reduction, broadcasts of one root, allgathers. Large ones travel alone, in place.
std::vector<Plan> MakePlans(const std::vector<Agreed>& agreed, const FusionLimits& limits);

// The bytes of one tensor of an agreed entry: for an allgather, of all ranks' parts together.
int64_t TotalBytes(const Agreed& agreed, int tensor);

}  // namespace tfhvd
