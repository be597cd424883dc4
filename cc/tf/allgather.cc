// TfhvdAllgather: every rank's tensor, one after the other along the first dimension.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdAllgather")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .Attr("tensor_name: string")
    .Attr("anonymous: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("deferred: bool = false")
    .SetIsStateful()
    .SetShapeFn(RowsUnknown)
    .Doc("Concatenates every rank's tensor along the first dimension, in which they may differ.");

class AllgatherKernel : public CollectiveKernel {
 public:
  explicit AllgatherKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllGather) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddAllLate(ctx, call);
  }
};

TFHVD_REGISTER_KERNEL("TfhvdAllgather", AllgatherKernel);

}  // namespace
}  // namespace tfhvd
