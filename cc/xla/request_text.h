// A request as text that may stand between quotes anywhere: so it lies in a compiled function.
#pragma once

#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// The bytes of an announcement of this one request (see cc/docs/wire-format.md), in hex, and, after
// a dot, its origin, which announcements have not.
std::string ToText(const Request& request);

// Anything else is an error.
Status FromText(std::string_view text, Request* request);

}  // namespace tfhvd
