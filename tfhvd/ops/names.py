"""Names: a collective's identity across ranks.

| who names it | where      | name                                               | in flight twice |
|--------------|------------|----------------------------------------------------|-----------------|
| the user     | eager      | as given                                           | an error        |
| the user     | in a graph | the name scope and the name, used once a graph:    | an error        |
|              |            | "tower/loss", then "tower/loss_1"                  |                 |
| nobody       | eager      | one per kind: "allreduce.eager"                    | takes its turn, |
|              |            |                                                    | in one thread   |
| nobody       | in a graph | from the function's and the tensor's names without | an error        |
|              |            | Keras' numbers, used once a graph                  |                 |
| tfhvd        | anywhere   | as given: an Identity                              | an error        |

In a graph the operation has the name, too, after its kind: "tower/TfhvdAllreduce_loss".

A name is equal on every rank that runs the same program, and in every step. The name of an unnamed
eager call is a constant, and an attribute of the operation; others are an input of it there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfhvd.compat import graphs

_IN_USE = "tfhvd/names_in_use"  # a collection of the outermost graph


class BackwardPass(NamedTuple):
    """The reductions of one backward pass: no result of them is used before all have begun.

    Attributes:
        name: of the first; empty for a collective that stands alone.
        buckets: how many collectives they are.
    """

    name: str = ""
    buckets: int = 1


ALONE = BackwardPass()


class Identity(str):
    """A name that tfhvd gives: it travels as it is, without name scopes, which may differ.

    Attributes:
        labels: what each of several tensors is called, for messages; empty for nothing.
        variable: the whole name of the variable that it is about, which may be another one on other
            ranks; empty for none.
        backward_pass: what it is part of.
    """

    labels: tuple[str, ...] = ()
    variable: str = ""
    backward_pass: BackwardPass = ALONE

    @classmethod
    def of_group(cls, text: str, labels: Sequence[str]) -> Identity:
        """Names a collective on several tensors."""
        name = cls(text)
        name.labels = tuple(map(str, labels))
        variables = [getattr(label, "variable", "") for label in labels]
        variables = [variable for variable in variables if variable]
        if variables:
            more = f" and {len(variables) - 1} more" if len(variables) > 1 else ""
            name.variable = f"{variables[0]}{more}"
        return name

    @classmethod
    def of_variable(cls, text: str, variable: str | None) -> Identity:
        """Names a collective on what belongs to a variable."""
        name = cls(text)
        name.variable = variable or ""
        return name


class Name(NamedTuple):
    """A collective's name.

    Attributes:
        text: on all ranks the same.
        anonymous: whether the user left it to us to order several of that name.
        labels: what each of its tensors is called, for messages; empty for nothing.
        variable: what it is about, see `Identity`.
        backward_pass: what it is part of.
    """

    text: str
    anonymous: bool
    labels: tuple[str, ...] = ()
    variable: str = ""
    backward_pass: BackwardPass = ALONE

    def part(self, suffix: str) -> Name:
        """Names one of several collectives that make up one operation."""
        return Name(f"{self.text}/{suffix}", self.anonymous)


def name_of(
    kind: str,
    given: str | None,
    tensor: tf.Tensor | None = None,
    *,
    set_id: int = 0,
    ignore_name_scope: bool = False,
) -> Name:
    """Names a collective.

    Args:
        kind: such as "allreduce".
        given: the user's name, an Identity, or None.
        tensor: the tensor of the collective, None if there is none.
        set_id: the number of the process set. Each set has separate names: a rank has no names of
            the sets that it is not in.
        ignore_name_scope: whether a user's name in a graph stands without the name scope.

    Raises:
        TypeError: if the user's name is no text.
        ValueError: if it is empty.
    """
    if given is not None:
        if not isinstance(given, str):
            raise TypeError(f"Received: name={given!r}. Expected: text, or None.")
        if not given:
            raise ValueError("The name is empty; pass name=None to have one made.")
        if tf.executing_eagerly() or isinstance(given, Identity):
            if not isinstance(given, Identity):
                return Name(given, anonymous=False)
            return Name(str(given), False, given.labels, given.variable, given.backward_pass)
        scope = "" if ignore_name_scope else tf.compat.v1.get_default_graph().get_name_scope()
        return Name(_unique(f"{scope}/{given}" if scope else given, set_id), anonymous=False)
    if tf.executing_eagerly():
        return Name(f"{kind}.eager", anonymous=True)
    graph = outermost_graph()
    of = "" if tensor is None else f".{_text_of(tensor)}"
    return Name(_unique(f"{kind}.{getattr(graph, 'name', 'graph')}{of}", set_id), anonymous=False)


def label_of_variable(position: int, name: str | None) -> str:
    """Names one of a list of variables by its index in it and the last part of its name.

    The rest of the name may differ between ranks, see _without_numbers.
    """
    last = (name or "").rpartition("/")[2]
    return f"{position}.{_without_numbers(last)}".rstrip(".")


def name_of_variable(prefix: str, position: int, name: str | None) -> Name:
    """Names a collective on one of a list of variables."""
    return name_by_occurrence(f"{prefix}/{label_of_variable(position, name)}")


def name_by_occurrence(text: str, set_id: int = 0) -> Name:
    """Names a collective, in a graph by which it is among those of that name."""
    return Name(text if tf.executing_eagerly() else _unique(text, set_id), anonymous=False)


def name_of_gradient(forward: tf.Operation) -> Name:
    """Names the collective that computes the gradient of the operation `forward`."""
    name, set_id = _key_of(forward)
    text = f"{name}/gradient"
    if forward.get_attr("anonymous"):
        return Name(text, anonymous=True)
    return name_by_occurrence(text, set_id)


def set_of(forward: tf.Operation) -> int:
    """Returns the number of the process set of a collective's operation."""
    return _key_of(forward)[1]


def tensors_of(forward: tf.Operation) -> list[tf.Tensor]:
    """Lists the inputs of a collective's operation, without the one that names it."""
    return [given for given in forward.inputs if given.dtype != tf.string]


def _key_of(forward: tf.Operation) -> tuple[str, int]:
    for given in forward.inputs:
        if given.dtype == tf.string:
            set_id, _, text = given.numpy().decode().partition("/")
            return text, int(set_id)
    return forward.get_attr("tensor_name").decode(), forward.get_attr("process_set_id")


def check_order(kind: str) -> None:
    """Refuses a collective in a function that tf.data calls for several elements at once.

    The elements of one rank would meet any of another's.

    Args:
        kind: of the collective, for messages.

    Raises:
        NotImplementedError: It is in such a function.
    """
    if not tf.executing_eagerly() and graphs.runs_in_parallel():
        raise NotImplementedError(
            f"A collective ({kind}) is in a function of tf.data that runs for several elements at "
            "once, on each rank in another order. Pass num_parallel_calls=None or 1 to the map "
            "with the collective in it; what comes before and after may run in parallel."
        )


def operation_name(kind: str, name: Name) -> str | None:
    """Names the operation of a collective in a graph; None if there is no graph.

    Args:
        kind: the operation's type, such as "TfhvdAllreduce".
        name: the collective's.
    """
    if tf.executing_eagerly():
        return None
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    text = name.text.removeprefix(f"{scope}/") if scope else name.text
    return f"{kind}_{re.sub(r'[^A-Za-z0-9_.-]', '_', text)}"


def outermost_graph() -> tf.Graph:
    """Returns the graph of the function being traced, outside of any branch or loop in it."""
    graph = tf.compat.v1.get_default_graph()
    while hasattr(getattr(graph, "outer_graph", None), "outer_graph"):
        graph = graph.outer_graph
    return graph


def _text_of(tensor: tf.Tensor) -> str:
    """Returns a tensor's name in its graph, without what would look odd in a message."""
    text = re.sub(r"[^A-Za-z0-9_./-]", "_", tensor.name.removesuffix(":0"))
    return "/".join(map(_without_numbers, text.split("/")))


def _without_numbers(part: str) -> str:
    """Cuts the numbers off "dense_3" and "dense_3_1".

    Keras numbers layers as they are made, and a rank may have made more of them, or have its model
    from a file. The order in which a graph is traced is the same on every rank instead.
    """
    return re.sub(r"(_[0-9]+)+$", "", part)


def _unique(wanted: str, set_id: int = 0) -> str:
    in_use = outermost_graph().get_collection_ref(_IN_USE)
    if not in_use:
        in_use.append(set())
    name, count = wanted, 1
    while (set_id, name) in in_use[0]:
        name, count = f"{wanted}_{count}", count + 1
    in_use[0].add((set_id, name))
    return name
