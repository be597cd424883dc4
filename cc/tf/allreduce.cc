// TfhvdAllreduce: the reduction of one tensor over all ranks.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdAllreduce")
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
    .SetIsStateful()  // neither folded, nor merged with its like
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Reduces a tensor over all ranks; every rank gets the result. See cc/base/arithmetic.h.");

class AllreduceKernel : public CollectiveKernel {
 public:
  explicit AllreduceKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllReduce) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddInPlace(ctx, call);
  }
};

TFHVD_REGISTER_KERNEL("TfhvdAllreduce", AllreduceKernel);

}  // namespace
}  // namespace tfhvd
