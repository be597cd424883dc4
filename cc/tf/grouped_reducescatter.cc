// TfhvdGroupedReducescatter: the reducescatters of several tensors, which are agreed on and fail
// together.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdGroupedReducescatter")
    .Input("tensors: T")
    .Output("outputs: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .TFHVD_REDUCTION_ATTRIBUTES()
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(RowsUnknown)
    .Doc(
        "Reduces each of several tensors over all ranks and gives each rank its rows, as one "
        "unit.");

TFHVD_REGISTER_KERNEL("TfhvdGroupedReducescatter", LateKernel<Collective::kReduceScatter>);

}  // namespace
}  // namespace tfhvd
