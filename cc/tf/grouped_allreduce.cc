// TfhvdGroupedAllreduce: the reductions of several tensors, agreed and failing as one.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdGroupedAllreduce")
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
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      for (int i = 0; i < c->num_inputs(); ++i) c->set_output(i, c->input(i));
      return absl::OkStatus();
    })
    .Doc("Reduces each of several tensors over all ranks, as one unit.");

class GroupedAllreduceKernel : public CollectiveKernel {
 public:
  explicit GroupedAllreduceKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllReduce) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddInPlace(ctx, call);
  }
};

TFHVD_REGISTER_KERNEL("TfhvdGroupedAllreduce", GroupedAllreduceKernel);

}  // namespace
}  // namespace tfhvd
