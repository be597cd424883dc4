"""Private parts of the graphs of TensorFlow's functions.

Every function here names the versions that need it, so that it can be deleted with them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import private
from tfhvd.errors import UnavailableError

if TYPE_CHECKING:
    import tensorflow as tf


_logger = logging.getLogger("tfhvd")


def run_independently(operation: tf.Operation) -> None:
    """Frees an operation of a function from the order in which TensorFlow runs stateful operations.

    The manager of control dependencies has this method in every TensorFlow since 2.16. A graph
    outside of functions has no manager, and no such order.
    """
    manager = getattr(operation.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(operation)


def runs_effects(graph: tf.Graph) -> bool:
    """Returns whether a graph is a function's, which runs every operation that has effects."""
    return getattr(graph, "experimental_acd_manager", None) is not None


def in_compiled_function(graph: tf.Graph | None = None) -> bool:
    """Returns whether TensorFlow traces a function with jit_compile=True, or a callee of one.

    TensorFlow (2.16 to 2.21 at least) then enters a context, which is not public.

    Args:
        graph: the graph of a function, branch or loop; None for the current graph.
    """
    import tensorflow as tf

    if graph is None and tf.executing_eagerly():
        return False
    in_context = private.of_module(
        "tensorflow.python.ops.control_flow_util",
        "GraphOrParentsInXlaContext",
        "tell whether a function is compiled",
    )
    return in_context(tf.compat.v1.get_default_graph() if graph is None else graph)


def add_control_input(operation: tf.Operation, before: tf.Operation) -> None:
    """Makes an operation of a graph run after another operation, which may have been made later.

    The method of TensorFlow (2.16 to 2.21 at least) is private.
    """
    add = private.attribute(operation, "_add_control_input", "order collectives")
    add(before)


@dataclasses.dataclass(frozen=True)
class Effects:
    """The effects that decide an operation's place in the order of a function.

    Attributes:
        after: the variables, or "" for everything else, after whose changes the operation runs.
        changed: the variables, or "", that the operation may change.
    """

    after: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


_DATA_PIPELINES = "tensorflow/python/data/ops/"
_READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")
LOOPS_AND_BRANCHES = ("While", "If", "Case")
_CALLS = ("Call", *LOOPS_AND_BRANCHES)


def effects_of(operation: tf.Operation) -> Effects:
    """Returns the effects by which TensorFlow's automatic control dependencies order an operation.

    The result may contain too many effects, but not too few. TensorFlow (2.16 to 2.21 at least)
    adds these dependencies when a function is complete. It decides by the resources that operations
    take, and by whether operations are stateful.
    """
    resources = tuple(i.name for i in operation.inputs if i.dtype.name == "resource")
    if operation.type in _READS:
        return Effects(after=resources)
    stateful = private.attribute(operation, "_is_stateful", "order collectives")
    if stateful and (not resources or operation.type.endswith(_CALLS)):
        resources = (*resources, "")
    return Effects(after=resources, changed=resources)


def after_traces(call: Callable[[tf.Graph], None], use: str) -> None:
    """Makes TensorFlow call a function with each complete trace, before the trace runs.

    TensorFlow (2.16 to 2.21 at least) has a list of functions that it calls with each graph.

    Args:
        call: takes the graph of a function, which may be traced within another function.
        use: the purpose in tfhvd, for the error.

    Raises:
        UnavailableError: if there is no such list.
    """
    module = "tensorflow.python.eager.polymorphic_function.transform"
    private.of_module(module, "FUNC_GRAPH_TRANSFORMS", use).append(call)


def has_operation(graph: tf.Graph, kind: str) -> bool:
    """Returns whether a function, or a branch, loop or callee in it, has a kind of operation."""
    return any(
        operation.type == kind or any(node.op == kind for node in nodes_within(operation))
        for operation in graph.get_operations()
    )


def trace_compiled_functions(complete: Callable[[tf.Graph], None]) -> None:
    """Makes TensorFlow trace the callees of compiled functions again, and report complete traces.

    TensorFlow (2.21 at least) asks the context of a compiled function whether its callees need a
    separate trace, as for TPUs. Without separate traces, or without `after_traces`, ranks that call
    collectives in different orders may wait for ever. If a function's cache of traces can be
    replaced, a trace without collectives is still shared, as without tfhvd.
    """
    use, python = "order the collectives of compiled functions", "tensorflow.python"
    try:
        after_traces(complete, use)
        context = private.of_module(f"{python}.ops.control_flow_ops", "XLAControlFlowContext", use)
    except UnavailableError as error:
        _logger.warning("%s Without this, all ranks must call them in the same order.", error)
        return
    context.RequiresUniqueFunctionRetracing = lambda self: True
    with contextlib.suppress(ImportError, AttributeError):
        from tensorflow.python.eager.polymorphic_function import tracing_compilation

        define = tracing_compilation._maybe_define_function
        tracing_compilation._maybe_define_function = functools.wraps(define)(
            lambda args, kwargs, options: define(args, kwargs, _sharing(options))
        )


def _sharing(options: Any) -> Any:
    """Returns the options to trace a function, so that compiled callers share some traces."""
    if options.function_cache is None or not in_compiled_function():
        return options
    return dataclasses.replace(options, function_cache=_SharingCache(options.function_cache))


class _SharingCache:
    """The traces of one function, for the compiled functions that call it."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self._enclosing = private.of_module(
            "tensorflow.python.ops.control_flow_ops",
            "get_enclosing_xla_context",
            "tell compiled functions apart",
        )

    def lookup(self, function_type: Any, context: Any) -> Any:
        found = self._cache.lookup(function_type, context)
        if found is None:
            found = self._cache.lookup(function_type, self._shared(context))
            if found is not None and _may_have_collectives(found.graph):
                return None
        return found

    def generalize(self, context: Any, function_type: Any) -> Any:
        return self._cache.generalize(context, function_type)

    def add(self, function: Any, context: Any) -> None:
        own = _may_have_collectives(function.graph)
        if own:
            # The key contains the address of this object, which identifies the compiled function.
            # The object must live as long as the trace, so that no other object gets its address.
            function.graph.tfhvd_compiled_for = self._enclosing()
        self._cache.add(function, context if own else self._shared(context))

    @staticmethod
    def _shared(context: Any) -> Any:
        """Returns the context of a function that no compiled function calls."""
        return context._replace(context=context.context._replace(xla_context_id=0))


def _may_have_collectives(graph: tf.Graph) -> bool:
    """Returns whether a function has collectives, or may have some in its gradient."""
    for operation in graph.get_operations():
        if operation.type.startswith("Tfhvd") or "_gradient_op_type" in operation.node_def.attr:
            return True
        if any(
            node.op.startswith("Tfhvd") or "_gradient_op_type" in node.attr
            for node in nodes_within(operation)
        ):
            return True
    return False


def runs_in_parallel() -> bool:
    """Returns whether tf.data will call the function that is being traced several times at once.

    The graph of the function does not tell. The answer is in an argument of the caller, whose name
    is the same in every TensorFlow from 2.16 to 2.21 at least.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if _DATA_PIPELINES in frame.f_code.co_filename:
            calls = frame.f_locals.get("num_parallel_calls")
            if calls is not None and not (isinstance(calls, int) and calls == 1):
                return True
        frame = frame.f_back
    return False


def is_converted(file: str) -> bool:
    """Returns whether AutoGraph has written a file: a translated function of the user."""
    return "__autograph_generated_file" in file


def lines_inside_out() -> Iterator[tuple[str, int, str]]:
    """Gives file, line and function of the current calls, as the user wrote them, the last first.

    Yields nothing if TensorFlow lacks the private function (2.16 to 2.21 at least have it), because
    the lines are only for people to read.
    """
    try:
        extract = private.of_module(
            "tensorflow.python.util.tf_stack", "extract_stack", "name lines of a program"
        )
    except UnavailableError:
        return
    for frame in reversed(extract()):
        yield frame.filename, frame.lineno, frame.name


def outer_graphs(graph: tf.Graph) -> list[tf.Graph]:
    """Lists the graphs of functions around the graph of a branch, a loop or a function."""
    found = [graph]
    while hasattr(getattr(found[-1], "outer_graph", None), "outer_graph"):
        found.append(found[-1].outer_graph)
    return found[1:]


def replace_input(operation: tf.Operation, index: int, tensor: tf.Tensor) -> None:
    """Replaces an input of an operation in a graph, by a private method of TensorFlow."""
    update = private.attribute(operation, "_update_input", "order collectives")
    update(index, tensor)


def nodes_within(operation: tf.Operation) -> list[tf.compat.v1.NodeDef]:
    """Lists the nodes (NodeDef) of the loop, branches or function that an operation runs."""
    if not operation.type.endswith(_CALLS):
        return []
    context = private.of_module(
        "tensorflow.python.eager.context", "context", "look into the functions that are called"
    )
    waiting = list(_functions_of(operation.node_def))
    seen: set[str] = set()
    nodes: list[tf.compat.v1.NodeDef] = []
    while waiting:
        name = waiting.pop()
        if name in seen or not context().has_function(name):
            continue
        seen.add(name)
        for node in context().get_function_def(name).node_def:
            nodes.append(node)
            waiting.extend(_functions_of(node))
    return nodes


def _functions_of(node: tf.compat.v1.NodeDef) -> Iterable[str]:
    for value in node.attr.values():
        yield from (f.name for f in (value.func, *value.list.func) if f.name)
