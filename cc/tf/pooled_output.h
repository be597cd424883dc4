// PooledOutput: host memory for outputs, which the process reuses: for large outputs TensorFlow's
// allocator gets fresh memory from the system each time, and for small ones the allocator's work is
// a large part of the cost of the collective.
#pragma once

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfhvd {

// Makes output `index` with the shape of input `index`: in the input's memory if nothing else uses
// it.
absl::Status ForwardOrAllocate(tensorflow::OpKernelContext* ctx, int index,
                               tensorflow::Tensor** output);

// The memory of an output whose shape is known only after the ranks have agreed on it. Usable on
// any thread, and when the context is gone.
class LateOutputMemory {
 public:
  // Chooses the place of the context's output 0, if it has one.
  explicit LateOutputMemory(tensorflow::OpKernelContext* ctx);

  // Makes a tensor with any contents; returns false if there is no memory for it. Does not wait for
  // memory: TensorFlow's allocators wait for up to 10 s, and on the engine's thread the other ranks
  // would wait, too, without a message.
  bool Allocate(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                tensorflow::Tensor* out) const;

 private:
  tensorflow::Allocator* allocator_;  // Not owned: the device's. Null: the process's own memory.
};

}  // namespace tfhvd
