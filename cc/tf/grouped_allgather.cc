// TfhvdGroupedAllgather: the allgathers of several tensors, agreed and failing as one.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdGroupedAllgather")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("tensor_name: string")
    .Attr("anonymous: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("deferred: bool = false")
    .SetIsStateful()
    .SetShapeFn(RowsUnknown)
    .Doc("Concatenates each of several tensors over the ranks, as one unit.");

class GroupedAllgatherKernel : public CollectiveKernel {
 public:
  explicit GroupedAllgatherKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllGather) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddAllLate(ctx, call);
  }
};

TFHVD_REGISTER_KERNEL("TfhvdGroupedAllgather", GroupedAllgatherKernel);

}  // namespace
}  // namespace tfhvd
