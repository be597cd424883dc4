// Lowering: how a tfhvd op becomes part of a computation. It includes XLA's compiler, which takes
// most of the time to compile a file.
#pragma once

#include "cc/xla/computation.h"
#include "cc/xla/op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"

namespace tfhvd {

// A tfhvd op, as part of a computation.
class Lowering : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(tensorflow::XlaOpKernelContext* ctx) final {
    Computation* computation = nullptr;
    OP_REQUIRES_OK(ctx, ComputationOf(ctx, &computation));
    const tensorflow::core::ScopedUnref unref(computation);
    OP_REQUIRES_OK(ctx, Write(ctx, computation));
  }

 private:
  virtual absl::Status Write(tensorflow::XlaOpKernelContext* ctx,
                             Computation* computation) const = 0;
};

// Replaces REGISTER_XLA_OP: from such registrations TensorFlow makes kernels when it makes its
// first device, but tfhvd's library is loaded later. This macro registers those kernels directly.
#define TFHVD_REGISTER_LOWERING(name, lowering)                                         \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU_XLA_JIT), lowering); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_GPU_XLA_JIT), lowering)

}  // namespace tfhvd
