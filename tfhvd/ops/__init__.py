"""The operations on tensors and objects, one a file."""

from tfhvd.compat import autograph, iterators
from tfhvd.job import process
from tfhvd.ops import _vectorized
from tfhvd.ops.allgather import allgather
from tfhvd.ops.allreduce import allreduce
from tfhvd.ops.alltoall import alltoall
from tfhvd.ops.barrier import barrier
from tfhvd.ops.batch_weight import batch_weight
from tfhvd.ops.broadcast import broadcast
from tfhvd.ops.broadcast_variables import broadcast_, broadcast_variables
from tfhvd.ops.grouped_allgather import grouped_allgather
from tfhvd.ops.grouped_allreduce import grouped_allreduce
from tfhvd.ops.grouped_reducescatter import grouped_reducescatter
from tfhvd.ops.join import join
from tfhvd.ops.load_ops import load_ops
from tfhvd.ops.objects import allgather_object, broadcast_object, broadcast_object_fn
from tfhvd.ops.reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from tfhvd.ops.reducescatter import reducescatter
from tfhvd.ops.topology import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)

autograph.leave_alone("tfhvd")
_vectorized.add_rules()
iterators.end_aside(process.is_one_of_several, process.end_if_failed)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "batch_weight",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "join",
    "load_ops",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]
