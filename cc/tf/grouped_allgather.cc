// TfhvdGroupedAllgather: the allgathers of several tensors, which are agreed on and fail together.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdGroupedAllgather")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(RowsUnknown)
    .Doc("Concatenates each of several tensors over the ranks, as one unit.");

TFHVD_REGISTER_KERNEL("TfhvdGroupedAllgather", LateKernel<Collective::kAllGather>);

}  // namespace
}  // namespace tfhvd
