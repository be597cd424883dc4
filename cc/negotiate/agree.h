// Agree: checks that the ranks' requests under one key describe the same collective. A pure
// function.
#pragma once

#include <vector>

#include "cc/flow/decision.h"
#include "cc/flow/request.h"

namespace tfhvd {

// `requests[i]` is the announcement of the job's rank `ranks[i]`; all have one key. `absent`: the
// other ranks of the process set, which have joined. Both lists are ascending. The verdict of the
// result is ok, or says which ranks sent what and how to correct it.
Decision Agree(const std::vector<const Request*>& requests, const std::vector<int>& ranks,
               const std::vector<int>& absent = {});

// Returns the name of a collective in messages: "allreduce 'grad/kernel'".
std::string Describe(const Request& request);

}  // namespace tfhvd
