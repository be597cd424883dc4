// Agree: whether what the ranks asked for under one key is one and the same collective. A pure
// function.
#pragma once

#include <vector>

#include "cc/flow/decision.h"
#include "cc/flow/request.h"

namespace tfhvd {

// `requests[i]` is what rank `ranks[i]` of the job announced; all have one key. `absent`: further
// ranks of the process set, which have joined. Both ascending. The verdict of the result is ok, or
// says which ranks sent what and how to mend it.
Decision Agree(const std::vector<const Request*>& requests, const std::vector<int>& ranks,
               const std::vector<int>& absent = {});

// "allreduce 'grad/kernel'": how messages name a collective.
std::string Describe(const Request& request);

}  // namespace tfhvd
