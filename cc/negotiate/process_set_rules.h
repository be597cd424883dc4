// Rules for changes of process sets: pure functions, for the coordinator.
#pragma once

#include <vector>

#include "cc/base/status.h"
#include "cc/flow/process_set_table.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Checks whether the set in `request` can be added or removed, in a job of `size` ranks with these
// sets. `absent`: ranks that have joined a set. Ok for any other request.
Status CheckProcessSetChange(const ProcessSetTable& sets, const Request& request,
                             const std::vector<int>& absent, int size);

// Returns the error of a collective of a process set that is gone.
Status ProcessSetRemoved(const Key& key);

// Returns the members as ranks.
std::vector<int> Ranks(const std::vector<int64_t>& members);

}  // namespace tfhvd
