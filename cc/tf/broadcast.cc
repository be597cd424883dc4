// TfhvdBroadcast: the root's tensor on every rank.
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

class BroadcastKernel : public CollectiveKernel {
 public:
  explicit BroadcastKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kBroadcast) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine& engine,
                          Call* call) const override {
    if (engine.topology().rank != root()) return AddInPlace(ctx, call);
    // The root's result is its input, unchanged and not copied, whoever else refers to it.
    ctx->set_output(0, ctx->input(0));
    call->Add(ctx->input(0), ctx->input(0));
    return absl::OkStatus();
  }
};

TFHVD_REGISTER_KERNEL("TfhvdBroadcast", BroadcastKernel);

}  // namespace
}  // namespace tfhvd
