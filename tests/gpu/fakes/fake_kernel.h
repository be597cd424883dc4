// Our kernel on the host: the very text of cc/device/batched_copy.cu, thread by thread.
#pragma once

#include "cc/device/batched_copy_args.h"

namespace fake {

void RunBatchedCopy(const tfhvd::BatchedCopyArgs& args, unsigned blocks, unsigned threads);

}  // namespace fake
