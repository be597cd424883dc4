// TfhvdGroupedReducescatter: the reducescatters of several tensors, agreed and failing as one.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdGroupedReducescatter")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("reduce_op: int")
    .Attr("prescale_factor: string = '1.0'")
    .Attr("postscale_factor: string = '1.0'")
    .Attr("tensor_name: string")
    .Attr("anonymous: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("deferred: bool = false")
    .SetIsStateful()
    .SetShapeFn(RowsUnknown)
    .Doc(
        "Reduces each of several tensors over all ranks and gives each rank its rows, as one "
        "unit.");

class GroupedReducescatterKernel : public CollectiveKernel {
 public:
  explicit GroupedReducescatterKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kReduceScatter) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddAllLate(ctx, call);
  }
};

TFHVD_REGISTER_KERNEL("TfhvdGroupedReducescatter", GroupedReducescatterKernel);

}  // namespace
}  // namespace tfhvd
