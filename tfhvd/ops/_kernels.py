"""The kernels of the op library: the only caller of them. No checks, no gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import tensorflow as tf

from tfhvd.compat import graphs
from tfhvd.job import process
from tfhvd.ops import compiled
from tfhvd.ops._origin import origin
from tfhvd.ops._threads import in_turn
from tfhvd.ops.names import BackwardPass, Name, check_order, operation_name
from tfhvd.ops.reduce_op import Average, ReduceOp
from tfhvd.runtime.elastic.call_log import Call
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_tf_ops
from tfhvd.runtime.process_sets import by_id

# Kinds of collectives whose results are equal on all ranks.
_ALIKE = {"Allreduce", "Allgather", "Broadcast"}


def on_device(name: str) -> AbstractContextManager[object]:
    """Places operations inside on a device; "" keeps the caller's (tf.device(None) would not)."""
    return tf.device(name) if name else nullcontext()


def reduce(
    tensors: Sequence[tf.Tensor],
    op: ReduceOp,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Reduces each tensor over the ranks; several are agreed, and fail, as one."""
    attributes = _reduction(op, prescale, postscale)
    return _one_or_group("Allreduce", tensors, name, process_set_id, **attributes)


def average(
    tensors: Sequence[tf.Tensor],
    weight: tf.Tensor,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Averages each tensor over the ranks, each of which says how much it counts."""
    process.take_part()
    deferred = compiled.is_compiled()
    with in_turn(name, process_set_id):
        outputs = load_tf_ops().tfhvd_weighted_allreduce(
            list(tensors),
            weight,
            deferred=deferred,
            **_labels(name),
            **_reduction(Average, prescale, postscale),
            **_identity("TfhvdWeightedAllreduce", name, process_set_id),
        )
    return _in_its_order(list(outputs), deferred)


def reduce_scatter(
    tensors: Sequence[tf.Tensor],
    op: ReduceOp,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Reduces each tensor over the ranks and returns this rank's rows of each."""
    attributes = _reduction(op, prescale, postscale)
    return _one_or_group("Reducescatter", tensors, name, process_set_id, **attributes)


def gather(tensor: tf.Tensor, name: Name, process_set_id: int) -> tf.Tensor:
    """Joins the ranks' tensors along the first dimension."""
    return gather_all([tensor], name, process_set_id)[0]


def gather_all(tensors: Sequence[tf.Tensor], name: Name, process_set_id: int) -> list[tf.Tensor]:
    """Joins the ranks' tensors, each for itself; several are agreed, and fail, as one."""
    return _one_or_group("Allgather", tensors, name, process_set_id)


def gather_counted(
    tensors: Sequence[tf.Tensor], name: Name, process_set_id: int
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Joins the ranks' tensors as one unit, and counts these ranks, as an int32 scalar."""
    if compiled.is_compiled():  # for a fixed number of ranks
        ranks = tf.constant(by_id(process_set_id).size(), tf.int32)
        return gather_all(tensors, name, process_set_id), ranks
    process.take_part()
    with in_turn(name, process_set_id):
        outputs, ranks = load_tf_ops().tfhvd_counted_allgather(
            list(tensors), **_identity("TfhvdCountedAllgather", name, process_set_id)
        )
    return _in_its_order(list(outputs), deferred=False), ranks


def exchange(
    tensor: tf.Tensor, splits: tf.Tensor | None, name: Name, process_set_id: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sends splits[r] rows to rank r (None: equally many); returns what came, and from whom."""
    process.take_part()
    if splits is None:
        splits = tf.zeros([0], tf.int32)
    deferred = compiled.is_compiled()
    with in_turn(name, process_set_id):
        output, received = load_tf_ops().tfhvd_alltoall(
            tensor, splits, deferred=deferred, **_identity("TfhvdAlltoall", name, process_set_id)
        )
    [output] = _in_its_order([output], deferred)
    return output, received


def broadcast(tensor: tf.Tensor, root: int, name: Name, process_set_id: int) -> tf.Tensor:
    """Returns the root's tensor."""
    return broadcast_all([tensor], root, name, process_set_id)[0]


def broadcast_all(
    tensors: Sequence[tf.Tensor], root: int, name: Name, process_set_id: int
) -> list[tf.Tensor]:
    """Returns the root's tensors; several are agreed, and fail, as one."""
    return _one_or_group("Broadcast", tensors, name, process_set_id, root_rank=root)


def rank() -> tf.Tensor:
    """Returns this process's rank: see `index_in`."""
    return _known_late("rank", 0, process.rank)


def size(process_set_id: int) -> int | tf.Tensor:
    """Returns how many ranks a process set has; in a graph of an elastic job, when it runs."""
    now = by_id(process_set_id).size
    return _known_late("size", process_set_id, now) if membership.is_elastic else now()


def index_in(process_set_id: int) -> tf.Tensor:
    """Returns how many of a process set's ranks are below this one, as an int32 scalar.

    In a graph it is a number that TensorFlow does not know before the graph runs. From one that it
    knows, such as a constant 0, it finds out which parts of a graph have no effect and leaves them
    out, with the collectives in them, on this rank alone.
    """
    return _known_late("index", process_set_id, lambda: by_id(process_set_id).rank())


def _known_late(what: str, process_set_id: int, now: Callable[[], int]) -> tf.Tensor:
    # XLA leaves out no collective, and makes a program for this rank anyway.
    if tf.executing_eagerly() or compiled.is_compiled():
        return tf.constant(now(), tf.int32)
    return load_tf_ops().tfhvd_topology_value(what=what, process_set_id=process_set_id)


def barrier(name: Name, process_set_id: int) -> None:
    """Waits for every rank."""
    with in_turn(name, process_set_id):
        load_tf_ops().tfhvd_barrier(**_identity("TfhvdBarrier", name, process_set_id))
    if compiled.is_compiled():
        compiled.put_in_order()


def find_not_finite(
    before: tf.Tensor,
    numbers: Sequence[int],
    tensors: Sequence[tf.Tensor],
    most: int,
    layers: Sequence[int],
    sizes: str,
    last: bool,
) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Adds which tensors are not finite to what was found before.

    Returns:
        What is found then, this rank's vote, and in a compiled function the tensors, to be used
        from then on; elsewhere none.
    """
    handed_on = [tensor.dtype for tensor in tensors] if compiled.is_compiled() else []
    found, vote, same = load_tf_ops().tfhvd_find_not_finite(
        before,
        list(tensors),
        numbers=list(numbers),
        most=most,
        handed_on=handed_on,
        layers=list(layers),
        sizes=sizes,
        last=last,
    )
    return found, vote, list(same)


def note_not_finite(
    found: tf.Tensor,
    votes: tf.Tensor,
    reductions: str,
    labels: Sequence[str],
    left_out: bool,
    process_set_id: int,
    sizes: str,
) -> tf.Operation | None:
    """Records a step's votes; returns the operation in a graph."""
    operation = load_tf_ops().tfhvd_note_not_finite(
        found,
        votes,
        reductions=reductions,
        labels=list(labels),
        left_out=left_out,
        process_set_id=process_set_id,
        sizes=sizes,
    )
    if operation is not None:
        graphs.run_independently(operation)
    return operation


def _one_or_group(
    kind: str, tensors: Sequence[tf.Tensor], name: Name, process_set_id: int, **attributes: object
) -> list[tf.Tensor]:
    kept: Call | None = None
    if comers.keeps and kind in _ALIKE and process_set_id == 0 and tf.executing_eagerly():
        types = tuple(tensor.dtype.name for tensor in tensors)
        kept = Call(kind, "" if name.anonymous else name.text, types)
        known = comers.recall(kept)
        if known is not None:
            return [
                tensor if data is None else tf.io.parse_tensor(data, tensor.dtype)
                for tensor, data in zip(tensors, known)
            ]
    else:
        process.take_part()
    library = load_tf_ops()
    deferred = compiled.is_compiled()
    with in_turn(name, process_set_id):
        if len(tensors) == 1:
            identity = _identity(f"Tfhvd{kind}", name, process_set_id)
            operation = getattr(library, f"tfhvd_{kind.lower()}")
            outputs = [operation(tensors[0], deferred=deferred, **identity, **attributes)]
        else:
            identity = _identity(f"TfhvdGrouped{kind}", name, process_set_id) | _labels(name)
            operation = getattr(library, f"tfhvd_grouped_{kind.lower()}")
            outputs = list(operation(list(tensors), deferred=deferred, **identity, **attributes))
    if kept is not None:
        size = sum(each.dtype.size * each.shape.num_elements() for each in outputs)
        comers.keep(kept, size, (tf.io.serialize_tensor(each).numpy() for each in outputs))
    return _in_its_order(outputs, deferred)


def _reduction(op: ReduceOp, prescale: float, postscale: float) -> dict[str, int | str]:
    return {
        "reduce_op": int(op),
        "prescale_factor": repr(prescale),
        "postscale_factor": repr(postscale),
    }


def _identity(kind: str, name: Name, process_set_id: int) -> dict[str, object]:
    """What tells a collective from others: eagerly an input, for what TensorFlow caches.

    It keeps a kernel, of 37 KB, for each value that it has seen of an attribute.
    """
    check_order(kind)
    always_alike = name.anonymous and process_set_id == 0
    as_input = tf.executing_eagerly() and not always_alike
    return {
        "identity": [_text(f"{process_set_id}/{name.text}")] if as_input else [],
        "name": operation_name(kind, name),
        "tensor_name": "" if as_input else name.text,
        "anonymous": name.anonymous,
        "process_set_id": 0 if as_input else process_set_id,
        "origin": origin(name.variable),
        **_part_of(name.backward_pass),
    }


@functools.lru_cache(maxsize=1024)
def _text(text: str) -> tf.Tensor:
    return tf.constant(text)


def _part_of(backward_pass: BackwardPass) -> dict[str, object]:
    """The attributes for the kernels for GPUs; an attribute only if it differs from the default."""
    if backward_pass.buckets == 1:
        return {}
    return {"backward_pass": backward_pass.name, "buckets": backward_pass.buckets}


def _labels(name: Name) -> dict[str, Sequence[str]]:
    """The tensors' names: only for graphs, since each eager call would convert them again."""
    return {"labels": name.labels} if name.labels and not tf.executing_eagerly() else {}


def _in_its_order(outputs: list[tf.Tensor], deferred: bool) -> list[tf.Tensor]:
    """Lets a collective of a function run as soon as its input is there; gives its results.

    TensorFlow runs stateful operations of a function one after the other unless told otherwise; the
    engine needs no order, and would have one tensor at a time to fuse.
    """
    if tf.executing_eagerly():
        return outputs
    graphs.run_independently(outputs[0].op)
    return compiled.finish_unless_deferred(outputs) if deferred else outputs
