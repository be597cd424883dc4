// StreamOf: the stream that TensorFlow computes on, for the core.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

// Returns the stream of a kernel that runs on a GPU, for EntryExtras::stream.
void* StreamOf(tensorflow::OpKernelContext* ctx);

}  // namespace tfhvd
