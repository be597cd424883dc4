// TfhvdAllreduce: the reduction of one tensor over all ranks.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdAllreduce")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .TFHVD_REDUCTION_ATTRIBUTES()
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(SameShapes)
    .Doc(
        "Reduces a tensor over all ranks; every rank gets the result. See "
        "cc/numeric/arithmetic.h.");

TFHVD_REGISTER_KERNEL("TfhvdAllreduce", InPlaceKernel<Collective::kAllReduce>);

}  // namespace
}  // namespace tfhvd
