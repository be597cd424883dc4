// TfhvdAfterCollectives and TfhvdBeforeCollectives: in compiled functions, the order of a loop or
// branch with collectives among other collectives.
//
// TensorFlow passes operations to XLA in the order of the program, but XLA keeps only the order
// that follows from data. So an input of the loop passes through TfhvdAfterCollectives, which
// depends on the collectives that were begun before; and one of the loop's results goes into
// TfhvdBeforeCollectives, on which the next waits for collectives depend. In uncompiled functions
// both do nothing: TensorFlow keeps the order itself.
#include "cc/tf/types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdAfterCollectives")
    .Input("value: T")
    .Output("same: T")
    .Attr("T: {bool, int32, int64}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Gives its input once all collectives before it are begun, or over.");

REGISTER_OP("TfhvdBeforeCollectives")
    .Input("value: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Has the collectives after it be waited for only once its input is there.");

class AfterCollectivesKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* ctx) override { ctx->set_output(0, ctx->input(0)); }

  bool IsExpensive() override { return false; }
};

class BeforeCollectivesKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext*) override {}

  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdAfterCollectives").Device(tensorflow::DEVICE_CPU),
                        AfterCollectivesKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdBeforeCollectives").Device(tensorflow::DEVICE_CPU),
                        BeforeCollectivesKernel);

}  // namespace
}  // namespace tfhvd
