// NcclErrors: NCCL's codes and texts as a Status; no other file converts them.
#pragma once

#include <string>

#include "cc/backends/nccl/nccl_api.h"
#include "cc/base/status.h"

namespace tfhvd {

// Returns "ncclAllReduce failed: unhandled system error. NCCL says: <its last error>. <the likely
// cause>". `comm` may be null. An error of another rank gives kAborted, any other kInternal.
Status NcclFailed(const NcclApi& api, const char* call, nccl::Result result, nccl::Comm comm);

// Returns the usual meaning of a text of NCCL, with advice; "" if it is unknown.
std::string NcclLikelyCause(const std::string& words);

}  // namespace tfhvd
