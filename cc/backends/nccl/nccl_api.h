// NcclApi: NCCL, opened at run time. Thread-safe once loaded; never closed.
#pragma once

#include <string>

#include "cc/backends/nccl/nccl_abi.h"
#include "cc/base/status.h"

namespace tfhvd {

struct NcclApi {
#define TFHVD_DECLARE(name, ...) nccl::Result (*name)(__VA_ARGS__) = nullptr;
  TFHVD_NCCL_FUNCTIONS(TFHVD_DECLARE)
#undef TFHVD_DECLARE
#define TFHVD_DECLARE(name, ...) const char* (*name)(__VA_ARGS__) = nullptr;
  TFHVD_NCCL_TEXTS(TFHVD_DECLARE)
#undef TFHVD_DECLARE

  std::string Version() const;  // "2.27.7"
};

// `library`: TFHVD_NCCL_LIBRARY, a path or the library's usual name; "" turns NCCL off. The usual
// name means the library that this process has loaded already (TensorFlow's), otherwise `installed`
// (the path in the wheel nvidia-nccl-cu12, or ""), otherwise the loader's. Returns kUnavailable,
// with advice, if there is none, or it is older than 2.14.3.
Status LoadNccl(const std::string& library, const std::string& installed, NcclApi* out);

}  // namespace tfhvd
