// TfhvdCountedAllgather: the allgathers of several tensors together, with the number of ranks. For
// results that are divided by the number of ranks: in an elastic job, any other number describes
// the present ranks, not those that participated in the collective.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

absl::Status CountedShape(tensorflow::shape_inference::InferenceContext* c) {
  TF_RETURN_IF_ERROR(RowsUnknown(c));
  c->set_output(NumTensors(c), c->Scalar());
  return absl::OkStatus();
}

REGISTER_OP("TfhvdCountedAllgather")
    .Input("tensors: T")
    .Output("outputs: T")
    .Output("ranks: int32")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(CountedShape)
    .Doc(
        "Concatenates each of several tensors over the ranks, as one unit, and says how many ranks "
        "there are, with those that have joined.");

class CountedKernel : public CollectiveKernel {
 public:
  explicit CountedKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kAllGather) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    call->CountRanks();
    return AddAllLate(ctx, call);
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdCountedAllgather").Device(tensorflow::DEVICE_CPU),
                        CountedKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdCountedAllgather")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("identity")
                            .HostMemory("ranks"),
                        CountedKernel);

}  // namespace
}  // namespace tfhvd
