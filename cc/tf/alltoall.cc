// TfhvdAlltoall: each rank sends some rows to every rank.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status AlltoallShape(InferenceContext* c) {
  ShapeHandle rows;
  ShapeHandle splits;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(0), 1, &rows));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &splits));
  if (c->RankKnown(rows)) TF_RETURN_IF_ERROR(c->ReplaceDim(rows, 0, c->UnknownDim(), &rows));
  c->set_output(0, rows);
  c->set_output(1, c->Vector(c->UnknownDim()));
  return absl::OkStatus();
}

REGISTER_OP("TfhvdAlltoall")
    .Input("tensor: T")
    .Input("splits: int32")
    .Output("output: T")
    .Output("received_splits: int32")
    .Attr("T: " TFHVD_OP_TYPES)
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(AlltoallShape)
    .Doc("Sends splits[r] rows to rank r, in order; equally many to each where splits is empty.");

class AlltoallKernel : public CollectiveKernel {
 public:
  explicit AlltoallKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllToAll) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    const auto splits = ctx->input(1).flat<int32_t>();
    call->AddLate(ctx->input(0));
    call->SetSplits({splits.data(), splits.data() + splits.size()});
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdAlltoall")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("splits")
                            .HostMemory("identity")
                            .HostMemory("received_splits"),
                        AlltoallKernel);

}  // namespace
}  // namespace tfhvd
