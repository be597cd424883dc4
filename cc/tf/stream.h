// The stream that TensorFlow computes on, as the core knows it.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

// The stream of a kernel that runs on a GPU, for EntryExtras::stream.
void* StreamOf(tensorflow::OpKernelContext* ctx);

}  // namespace tfhvd
