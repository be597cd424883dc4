// NCCL's codes and texts as a Status: the one place.
#pragma once

#include <string>

#include "cc/backends/nccl/nccl_api.h"
#include "cc/base/status.h"

namespace tfhvd {

// "ncclAllReduce failed: unhandled system error. NCCL says: <its last error>. <what is likely>".
// `comm` may be null. An error of another rank is kAborted, all else kInternal.
Status NcclFailed(const NcclApi& api, const char* call, nccl::Result result, nccl::Comm comm);

// What NCCL's words usually mean, and what to do; "" where that is not known.
std::string NcclLikelyCause(const std::string& words);

}  // namespace tfhvd
