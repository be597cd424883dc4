// TfhvdTurn and TfhvdSeen: before and after a loop or branch with collectives in it, in compiled
// functions.
//
// TensorFlow hands operations to XLA in the order of the program, and XLA keeps only what follows
// from data. So what a loop begins with takes its turn behind the collectives that were begun, and
// the next that are waited for come after they have seen what it gave. Uncompiled there is nothing
// to do: TensorFlow keeps its order itself.
#include "cc/tf/types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdTurn")
    .Input("value: T")
    .Output("same: T")
    .Attr("T: {bool, int32, int64}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Gives its input once all collectives before it are begun, or over.");

REGISTER_OP("TfhvdSeen")
    .Input("value: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Has the collectives after it be waited for only once its input is there.");

class TurnKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* ctx) override { ctx->set_output(0, ctx->input(0)); }

  bool IsExpensive() override { return false; }
};

class SeenKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext*) override {}

  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdTurn").Device(tensorflow::DEVICE_CPU), TurnKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdSeen").Device(tensorflow::DEVICE_CPU), SeenKernel);

}  // namespace
}  // namespace tfhvd
