// Outputs on the host come from memory of the process's own that is used again and again: for large
// ones TensorFlow's allocator takes fresh memory from the system each time, and for small ones the
// allocator's work is a good part of all that the collective costs.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

// Output `index` of the same shape as input `index`: the input's memory where nobody else uses it.
absl::Status ForwardOrAllocate(tensorflow::OpKernelContext* ctx, int index,
                               tensorflow::Tensor** output);

}  // namespace tfhvd
