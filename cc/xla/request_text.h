// RequestText: requests, and names of gradients, as text that needs no quoting: compiled functions
// contain them as attributes.
#pragma once

#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/flow/finite_vote.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Returns the bytes of an announcement of this one request (see cc/docs/wire-format.md), in hex,
// and after a dot its origin, which announcements lack.
std::string ToText(const Request& request);

// Parses such a text; any other text is an error.
Status FromText(std::string_view text, Request* request);

// The fields, in hex, with dots between.
std::string ToText(const SharedGradients& gradients);
Status FromText(std::string_view text, SharedGradients* gradients);

}  // namespace tfhvd
