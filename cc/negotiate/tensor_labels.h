// What the tensors of a group are called, in messages about one of them.
#pragma once

#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// `verdict`, made where the others' labels are not known, with this rank's own label behind each
// "tensor N of the group".
Status WithLabels(const Status& verdict, const Request& own);

}  // namespace tfhvd
