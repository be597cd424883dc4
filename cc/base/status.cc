#include "cc/base/status.h"

#include <cstdio>
#include <cstdlib>

namespace tfhvd {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kFailedPrecondition:
      return "failed precondition";
    case StatusCode::kAborted:
      return "aborted";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kInternal:
      return "internal";
    case StatusCode::kDataLoss:
      return "data loss";
  }
  return "unknown";
}

std::string Status::ToString() const {
  return ok() ? "ok" : std::string(StatusCodeName(code_)) + ": " + message_;
}

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr,
               "[tfhvd] %s:%d: check failed: %s\n[tfhvd] This is a bug of tfhvd: please report it "
               "with these lines.\n",
               file, line, what.c_str());
  std::abort();
}

}  // namespace tfhvd
