#include "cc/tf/status.h"

namespace tfhvd {
namespace {

absl::StatusCode ToAbslCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return absl::StatusCode::kOk;
    case StatusCode::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case StatusCode::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
    case StatusCode::kAborted:
      return absl::StatusCode::kAborted;
    case StatusCode::kCancelled:
      return absl::StatusCode::kCancelled;
    case StatusCode::kUnavailable:
      return absl::StatusCode::kUnavailable;
    case StatusCode::kInternal:
      return absl::StatusCode::kInternal;
    case StatusCode::kDataLoss:  // for programs, a rank has failed
      return absl::StatusCode::kAborted;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace

absl::Status ToAbsl(const Status& status) {
  return absl::Status(ToAbslCode(status.code()), status.message());
}

}  // namespace tfhvd
