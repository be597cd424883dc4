// What may be done to process sets: pure functions, for the coordinator.
#pragma once

#include <vector>

#include "cc/base/status.h"
#include "cc/flow/process_set_table.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Whether the set that `request` makes or removes can be, in a job of `size` ranks with these sets,
// of which the ranks `absent` have joined one. Ok for any other request.
Status CheckProcessSetChange(const ProcessSetTable& sets, const Request& request,
                             const std::vector<int>& absent, int size);

// What becomes of a collective of a process set that is gone.
Status ProcessSetRemoved(const Key& key);

// Members as ranks.
std::vector<int> Ranks(const std::vector<int64_t>& members);

}  // namespace tfhvd
