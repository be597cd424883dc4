// Outputs on the host: large ones come from the process's pool, because TensorFlow's allocator
// takes fresh memory from the system for them each time.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

// Output `index` of the same shape as input `index`: the input's memory where nobody else uses it.
absl::Status ForwardOrAllocate(tensorflow::OpKernelContext* ctx, int index,
                               tensorflow::Tensor** output);

}  // namespace tfhvd
