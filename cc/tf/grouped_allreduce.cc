// TfhvdGroupedAllreduce: the reductions of several tensors, which are agreed on and fail together.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdGroupedAllreduce")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("labels: list(string) = []")
    .TFHVD_REDUCTION_ATTRIBUTES()
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(SameShapes)
    .Doc("Reduces each of several tensors over all ranks, as one unit.");

TFHVD_REGISTER_KERNEL("TfhvdGroupedAllreduce", InPlaceKernel<Collective::kAllReduce>);

}  // namespace
}  // namespace tfhvd
