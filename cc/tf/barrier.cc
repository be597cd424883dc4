// TfhvdBarrier: ends when every rank has begun it.
#include "cc/tf/collective_kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdBarrier")
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Waits until every rank has come to this point.");

class BarrierKernel : public CollectiveKernel {
 public:
  explicit BarrierKernel(tensorflow::OpKernelConstruction* ctx)
      : CollectiveKernel(ctx, Collective::kBarrier) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext*, const Engine&, Call*) const override {
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("TfhvdBarrier").Device(tensorflow::DEVICE_CPU), BarrierKernel);

}  // namespace
}  // namespace tfhvd
