// Requests, and names of gradients, as text that may stand between quotes anywhere: so they lie in
// compiled functions.
#pragma once

#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/flow/finite_vote.h"
#include "cc/flow/request.h"

namespace tfhvd {

// The bytes of an announcement of this one request (see cc/docs/wire-format.md), in hex, and, after
// a dot, its origin, which announcements have not.
std::string ToText(const Request& request);

// Anything else is an error.
Status FromText(std::string_view text, Request* request);

// The fields, in hex, with dots between.
std::string ToText(const SharedGradients& gradients);
Status FromText(std::string_view text, SharedGradients* gradients);

}  // namespace tfhvd
