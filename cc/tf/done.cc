// TfhvdDone: waits for collectives that were begun before it, in compiled functions.
//
// XLA runs one call after another. Therefore a collective consists of two calls there: its own op
// begins it, with the attribute `deferred`, and one TfhvdDone waits for many collectives, after all
// have begun. In uncompiled functions the collectives complete by themselves, and TfhvdDone does
// nothing.
#include "cc/tf/types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdDone")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .SetIsStateful()  // the collectives must be finished even if the results are unused
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
      return absl::OkStatus();
    })
    .Doc("Takes the outputs of deferred collectives, gives their results.");

class DoneKernel : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* ctx) override {
    for (int i = 0; i < ctx->num_inputs(); ++i) ctx->set_output(i, ctx->input(i));
  }

  bool IsExpensive() override { return false; }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdDone").Device(tensorflow::DEVICE_CPU), DoneKernel);

}  // namespace
}  // namespace tfhvd
