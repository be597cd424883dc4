// TfhvdWeightedAllreduce: the averages of tensors over all ranks, with a weight from each rank. One
// tensor, or several that are agreed on and fail together.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdWeightedAllreduce")
    .Input("tensors: T")
    .Input("weight: int32")
    .Input("identity: identities * string")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("reduce_op: int")
    .Attr("prescale_factor: string = '1.0'")
    .Attr("postscale_factor: string = '1.0'")
    .Attr("identities: int >= 0 = 0")
    .Attr("tensor_name: string")
    .Attr("origin: string = ''")
    .Attr("backward_pass: string = ''")
    .Attr("buckets: int = 1")
    .Attr("labels: list(string) = []")
    .Attr("anonymous: bool = false")
    .Attr("process_set_id: int = 0")
    .Attr("deferred: bool = false")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
      return absl::OkStatus();
    })
    .Doc("Averages each of several tensors over all ranks by the ranks' weights, as one unit.");

class WeightedAllreduceKernel : public CollectiveKernel {
 public:
  explicit WeightedAllreduceKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllReduce) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    const tensorflow::Tensor& weight = ctx->input(ctx->num_outputs());
    if (weight.NumElements() != 1 || weight.flat<int32_t>()(0) < 0) {
      return absl::InvalidArgumentError(
          "The weight of an average cannot be used. Received: " + weight.DebugString() +
          ". Expected: one number, 0 or above.");
    }
    call->SetWeight(weight.flat<int32_t>()(0));
    return AddInPlace(ctx, call);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdWeightedAllreduce").Device(tensorflow::DEVICE_CPU),
                        WeightedAllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdWeightedAllreduce")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("weight")
                            .HostMemory("identity"),
                        WeightedAllreduceKernel);

}  // namespace
}  // namespace tfhvd
