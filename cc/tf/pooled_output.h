// Outputs on the host come from memory of the process's own that is used again and again: for large
// ones TensorFlow's allocator takes fresh memory from the system each time, and for small ones the
// allocator's work is a good part of all that the collective costs.
#pragma once

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfhvd {

// Output `index` of the same shape as input `index`: the input's memory where nobody else uses it.
absl::Status ForwardOrAllocate(tensorflow::OpKernelContext* ctx, int index,
                               tensorflow::Tensor** output);

// Where an output lies whose shape is known only once the ranks have agreed on it. Usable on any
// thread, and when the context is gone.
class LateOutputMemory {
 public:
  // Where output 0 of the context lies, if it has any.
  explicit LateOutputMemory(tensorflow::OpKernelContext* ctx);

  // A tensor with any contents; false where there is no memory for it. It does not wait for memory:
  // TensorFlow's allocators wait for up to 10 s, and on the engine's thread the other ranks would
  // wait as well, without a word.
  bool Allocate(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                tensorflow::Tensor* out) const;

 private:
  tensorflow::Allocator* allocator_;  // Not owned: the device's. Null: the process's own memory.
};

}  // namespace tfhvd
