"""Collectives in functions with jit_compile=True: begun at their places, finished together.

XLA runs one call after another, and a call that waits for other ranks keeps all that follow from
being begun. If rank 0 waits for `a` before it has begun `b`, and rank 1 the other way round, both
wait forever. So in a compiled function a collective's own operation only begins it, and an
operation TfhvdDone finishes one or several of them, after everything has been begun that can be:

- A collective's *level* is the number of finished ones that it depends on, one behind the other.
- Whatever finishes a collective of level n comes after the beginning of all of level n and below.

The levels follow only from the program's data, with any order of the calls in a rank's program.
Consider the unfinished collectives of the lowest level: no rank waits for anything before it has
begun them, so they end.

Two collectives of one name cannot be in flight together: the second depends on the first, so that a
function may be called twice that gives what it calls a fixed name.

A loop, a branch or a call of another function that contains collectives is an atomic region. It
comes after the beginning of its level, and everything that depends on it is of the next level.
Several of them run in the order of the program, which TensorFlow keeps among operations with
effects; on all ranks it has to be the same, compiled or not.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Sequence

import tensorflow as tf

from tfhvd.compat import graphs
from tfhvd.runtime.native import chosen_ops, load_tf_ops, rebuild_command

_ORDER = "tfhvd/order"  # a collection of the graph: its _Order
_TRAVEL = (
    *(tf.bool, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.uint32, tf.int32, tf.uint64, tf.int64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128),
)
_begin_only: contextvars.ContextVar[bool] = contextvars.ContextVar("begin_only", default=False)


def is_compiled() -> bool:
    """Whether operations that are made now become part of a compiled function.

    Raises:
        NotImplementedError: They do, and this build has no collectives for XLA.
    """
    compiled = graphs.in_compiled_function()
    if compiled and not chosen_ops().xla:
        raise NotImplementedError(
            "A function with jit_compile=True calls a collective, which this tfhvd cannot compile: "
            f"it was built with TensorFlow {chosen_ops().tensorflow}, whose headers lack what that "
            "needs. Leave out jit_compile=True, or install TensorFlow 2.20 or newer and type: "
            f"{rebuild_command()}"
        )
    return compiled


@contextlib.contextmanager
def begin_only() -> Iterator[None]:
    """Leaves it to the caller to `finish` the collectives that are called inside.

    Until then the outputs may be given to `finish` only: they are being written.
    """
    token = _begin_only.set(True)
    try:
        yield
    finally:
        _begin_only.reset(token)


def finish_unless_deferred(outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Finishes one collective, from whose operation all these outputs are."""
    order = _order_of(outputs[0].graph)
    order.add(outputs[0].op)
    return list(outputs) if _begin_only.get() else finish(outputs)


def finish(outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Waits for collectives; gives their results, in order.

    Args:
        outputs: all outputs of each of them, those of one together and in their order.
    """
    order = _order_of(outputs[0].graph)
    level = max(order.level(output.op) for output in outputs)
    with tf.control_dependencies([order.gate(level)]):
        results = load_tf_ops().tfhvd_done(list(outputs))
    order.finished(results[0].op, [output.op for output in outputs], level)
    graphs.run_independently(results[0].op)
    return list(results)


def has_compiled(operation: tf.Operation) -> bool:
    """Whether a collective's operation was made for a compiled function.

    If so, this rank's rows are as many as every other's.
    """
    return operation.get_attr("deferred")


def results_of(operation: tf.Operation) -> list[tf.Tensor]:
    """Lists a collective's results: its outputs, in compiled functions after they are finished."""
    if not has_compiled(operation):
        return list(operation.outputs)
    results = []
    for output in operation.outputs:
        done = next(o for o in output.consumers() if o.type == "TfhvdDone")
        place = next(i for i, given in enumerate(done.inputs) if given is output)
        results.append(done.outputs[place])
    return results


def put_in_order() -> None:
    """Puts operations in order that are no collectives with a result, such as a barrier."""
    _order_of(tf.compat.v1.get_default_graph()).look()


def _order_of(graph: tf.Graph) -> _Order:
    order = _existing_order_of(graph)
    if order is None:
        for outer in graphs.outer_graphs(graph):
            if _existing_order_of(outer) is None and graphs.in_compiled_function(outer):
                outer.get_collection_ref(_ORDER).append(_Order(outer))
        order = _Order(graph)
        graph.get_collection_ref(_ORDER).append(order)
    return order


def _existing_order_of(graph: tf.Graph) -> _Order | None:
    # A branch or a loop's body begins with its outer graph's collection.
    return next((o for o in graph.get_collection(_ORDER) if o.graph is graph), None)


def _complete(graph: tf.Graph) -> None:
    """Puts in order what a function does after its last collective."""
    order = _existing_order_of(graph)
    if order is not None:
        order.look()


class _Order:
    """The levels of one graph's operations, and a gate for each level.

    A gate is an operation without effect that runs after all of its level and below have begun.
    An operation that finishes a collective of this level waits for the gate; later collectives of
    the level join the gate.
    """

    def __init__(self, graph: tf.Graph) -> None:
        self.graph = graph
        self._seen = 0
        self._levels: dict[str, int] = {}
        # By a collective's process set and name: the operation after which it may begin again.
        self._over: dict[tuple[int, bytes], tf.Operation] = {}
        # TensorFlow adds the order of operations on a variable, and of others with effects, when
        # the function is complete. Here: what the next one on that variable has to come after.
        self._effects: dict[str, int] = {}
        self._gates: list[tf.Operation] = []
        # A call of this function comes after the one before it. Where TensorFlow inlines functions,
        # it keeps that order for operations without inputs only.
        with graph.as_default(), tf.control_dependencies(None):
            self._entered = tf.no_op(name="tfhvd_entered")
        self._levels[self._entered.name] = 0

    def add(self, begin: tf.Operation) -> None:
        """Records an operation that begins a collective."""
        graphs.add_control_input(begin, self._entered)
        graphs.add_control_input(self.gate(self.level(begin)), begin)

    def level(self, operation: tf.Operation) -> int:
        self.look()
        return self._levels[operation.name]

    def look(self) -> None:
        """Finds the levels of the operations that were made since it last looked."""
        operations = self.graph.get_operations()
        for new in operations[self._seen :]:
            if new.name not in self._levels:
                self._levels[new.name] = self._level_of(new)
        self._seen = len(operations)

    def finished(self, done: tf.Operation, begun: Iterable[tf.Operation], level: int) -> None:
        """Records an operation that finishes collectives, which others have begun."""
        self._levels[done.name] = level + 1
        for key in _keys_of(operation.node_def for operation in begun):
            self._over[key] = done

    def gate(self, level: int) -> tf.Operation:
        while len(self._gates) <= level:
            with self.graph.as_default(), tf.control_dependencies(None):
                gate = tf.no_op(name="tfhvd_begun")
            self._levels[gate.name] = 0
            if self._gates:
                graphs.add_control_input(gate, self._gates[-1])
            self._gates.append(gate)
        return self._gates[level]

    def _level_of(self, operation: tf.Operation) -> int:
        is_ours = operation.type.startswith("Tfhvd")
        nodes = [operation.node_def] if is_ours else graphs.nodes_within(operation)
        keys = _keys_of(nodes)
        for last in dict.fromkeys(self._over[key] for key in keys if key in self._over):
            graphs.add_control_input(operation, last)
        before = [i.op for i in operation.inputs] + list(operation.control_inputs)
        level = max((self._levels.get(o.name, 0) for o in before), default=0)
        if is_ours and operation.type != "TfhvdBarrier":
            return level  # free of TensorFlow's order
        effects = graphs.effects_of(operation)
        level = max([level, *(self._effects.get(effect, 0) for effect in effects.after)])
        if any(node.op.startswith("Tfhvd") for node in nodes):
            last = self._run_region(operation, level)
            self._over.update(dict.fromkeys(keys, last))
            level += 1
        for effect in effects.changed:
            self._effects[effect] = max(self._effects.get(effect, 0), level)
        return level

    def _run_region(self, operation: tf.Operation, level: int) -> tf.Operation:
        """Runs a barrier or an atomic region, once the collectives of its level have begun.

        Returns:
            The operation after which collectives of the same names may begin again.
        """
        graphs.add_control_input(operation, self.gate(level))
        graphs.add_control_input(self.gate(level + 1), operation)
        if not operation.type.endswith(graphs.LOOPS_AND_BRANCHES):
            return operation  # XLA gets the operations themselves.
        first = operation.inputs[0]
        results = [y for y in operation.outputs if y.dtype in _TRAVEL]
        if first.dtype not in (tf.bool, tf.int32, tf.int64) or not results:
            return operation
        with self.graph.as_default(), tf.control_dependencies(None):
            with tf.control_dependencies(operation.control_inputs):
                begun = load_tf_ops().tfhvd_after_collectives(first)
            given = load_tf_ops().tfhvd_before_collectives(results[0])
        for added in (begun.op, given):
            graphs.run_independently(added)
        graphs.replace_input(operation, 0, begun)
        graphs.add_control_input(self.gate(level + 1), given)
        self._levels[begun.op.name], self._levels[given.name] = level, level + 1
        return given


def _keys_of(nodes: Iterable[tf.compat.v1.NodeDef]) -> list[tuple[int, bytes]]:
    """Lists the process sets and names of the collectives among nodes that have names to heed."""
    attributes = [node.attr for node in nodes if "tensor_name" in node.attr]
    return [(a["process_set_id"].i, a["tensor_name"].s) for a in attributes if not a["anonymous"].b]


@tf.RegisterGradient("TfhvdDone")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor | None) -> list[tf.Tensor | None]:
    del forward
    return list(gradients)


graphs.trace_compiled_functions(_complete)
