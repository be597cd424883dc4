// ToAbsl: the only conversion of the core's Status to TensorFlow's.
#pragma once

#include "absl/status/status.h"
#include "cc/base/status.h"

namespace tfhvd {

absl::Status ToAbsl(const Status& status);

}  // namespace tfhvd
