// TfhvdReducescatter: the reduction of one tensor over all ranks, of which each gets some rows.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdReducescatter")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .Attr("reduce_op: int")
    .Attr("prescale_factor: string = '1.0'")
    .Attr("postscale_factor: string = '1.0'")
    .Attr("tensor_name: string")
    .Attr("anonymous: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("deferred: bool = false")
    .SetIsStateful()
    .SetShapeFn(RowsUnknown)
    .Doc("Reduces a tensor over all ranks and gives each rank its part of the rows.");

class ReducescatterKernel : public CollectiveKernel {
 public:
  explicit ReducescatterKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kReduceScatter) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddAllLate(ctx, call);
  }
};

TFHVD_REGISTER_KERNEL("TfhvdReducescatter", ReducescatterKernel);

}  // namespace
}  // namespace tfhvd
