// TfhvdAllgather: every rank's tensor, one after the other along the first dimension.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// As the input, but for the first dimension: only the ranks together know it.
absl::Status AllgatherShape(InferenceContext* c) {
  ShapeHandle input;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &input));
  if (!c->RankKnown(input)) {
    c->set_output(0, c->UnknownShape());
    return absl::OkStatus();
  }
  ShapeHandle output;
  TF_RETURN_IF_ERROR(c->ReplaceDim(input, 0, c->UnknownDim(), &output));
  c->set_output(0, output);
  return absl::OkStatus();
}

REGISTER_OP("TfhvdAllgather")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .Attr("tensor_name: string")
    .Attr("anonymous: bool = false")
    .Attr("process_set_id: int = 0")
    .SetIsStateful()
    .SetShapeFn(AllgatherShape)
    .Doc("Concatenates every rank's tensor along the first dimension, in which they may differ.");

class AllgatherKernel : public CollectiveKernel {
 public:
  explicit AllgatherKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllGather) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    call->AddLate(ctx->input(0));
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);

}  // namespace
}  // namespace tfhvd
