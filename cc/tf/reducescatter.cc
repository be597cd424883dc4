// TfhvdReducescatter: the reduction of one tensor over all ranks; each rank gets some of its rows.
#include "cc/tf/collective_kernel.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/op.h"

namespace tfhvd {
namespace {

REGISTER_OP("TfhvdReducescatter")
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: " TFHVD_OP_TYPES)
    .TFHVD_REDUCTION_ATTRIBUTES()
    .TFHVD_IDENTITY_ATTRIBUTES()
    .SetShapeFn(RowsUnknown)
    .Doc("Reduces a tensor over all ranks and gives each rank its part of the rows.");

TFHVD_REGISTER_KERNEL("TfhvdReducescatter", LateKernel<Collective::kReduceScatter>);

}  // namespace
}  // namespace tfhvd
