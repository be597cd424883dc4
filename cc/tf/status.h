// The core's Status as TensorFlow's: the one place where one becomes the other.
#pragma once

#include "absl/status/status.h"
#include "cc/base/status.h"

namespace tfhvd {

absl::Status ToAbsl(const Status& status);

}  // namespace tfhvd
