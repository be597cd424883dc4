// TfhvdBroadcast: the root's tensor on every rank. TfhvdGroupedBroadcast: several tensors, which
// are agreed on and fail together.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdBroadcast")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .Attr("root_rank: int")
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(SameShapes)
    .Doc("Gives every rank the root's tensor; types and shapes are equal on all ranks.");

REGISTER_OP("TfhvdGroupedBroadcast")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("root_rank: int")
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(SameShapes)
    .Doc("Gives every rank the root's tensors, as one unit.");

class BroadcastKernel : public CollectiveKernel {
 public:
  explicit BroadcastKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kBroadcast) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine& engine,
                          Call* call) const override {
    if (engine.topology().rank != root()) return AddInPlace(ctx, call);
    // The root's result is its input, unchanged and not copied, even if other operations refer to
    // it.
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      ctx->set_output(i, ctx->input(i));
      call->Add(ctx->input(i), ctx->input(i));
    }
    return absl::OkStatus();
  }
};

TFHVD_REGISTER_KERNEL("TfhvdBroadcast", BroadcastKernel);
TFHVD_REGISTER_KERNEL("TfhvdGroupedBroadcast", BroadcastKernel);

}  // namespace
}  // namespace tfhvd
