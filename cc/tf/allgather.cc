// TfhvdAllgather: the tensors of all ranks, concatenated along the first dimension.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdAllgather")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(RowsUnknown)
    .Doc("Concatenates every rank's tensor along the first dimension, in which they may differ.");

TFHVD_REGISTER_KERNEL("TfhvdAllgather", LateKernel<Collective::kAllGather>);

}  // namespace
}  // namespace tfhvd
