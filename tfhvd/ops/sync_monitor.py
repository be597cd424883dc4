"""Which gradients the current training step reduces, and which variables it updates without.

If each rank updates a variable from its own gradients, the variable differs between ranks from then
on, and nothing else fails. Optimizers of Keras report the variables that they update to this
module, and every reduction of gradients reports its variables.

| a step | is known as | what finds such variables |
|---|---|---|
| of `fit` | a `Step`, which `fit` has `watched` | `fit`, after the first step |
| in a tf.function | a `Step` of its outermost graph | tracing, if it has a distributed tape |
| of a loop that runs eagerly | nothing: its end is unknown | the third update, see below |

In an eager loop that has a new distributed tape before the second and the third update of a
variable, the variable is taken for one of the loop's. Before, it may be of something else.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import math
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.compat import graphs, training
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of, tf_variable, variable_name
from tfhvd.errors import NotSynchronizedError
from tfhvd.job import process
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.runtime.process_sets import has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Optimizer, TensorLike, Variable
    from tfhvd.gradients.reducer import GradientReducer

_logger = logging.getLogger("tfhvd")
_STEP = "tfhvd/step"  # a collection of the outermost graph: its Step
_OPTIMIZER = "_tfhvd_optimizer"  # a note on a variable: what has updated it
_LATER = 2  # how often a loop must come back to a variable before that is taken for its way


class Step:
    """What tapes, optimizers and collectives do in one training step.

    In a step that is traced, all branches count.

    Attributes:
        tapes: what reduces the gradients of distributed tapes: the last of each name and set.
        names: of the reductions of gradients, in the graph that was traced last.
        reduces_itself: whether a loss of a Keras model is one number before Keras has reduced it.
    """

    def __init__(self) -> None:
        self.tapes: dict[tuple[str | None, int | None], GradientReducer] = {}
        self.names: frozenset[str] = frozenset()
        self.reduces_itself = False
        self._updated: dict[int, Variable] = {}
        self._accounted: dict[int, Variable] = {}
        self._by_hand = 0.0

    def account_for(self, variables: Iterable[Variable]) -> None:
        """Records variables whose gradients were reduced, or are meant to be local."""
        self._accounted.update((key_of(v), v) for v in variables)

    def update(self, variables: Iterable[Variable]) -> None:
        """Records variables that an optimizer has updated."""
        self._updated.update((key_of(v), v) for v in variables)

    def reduce_by_hand(self, elements: float) -> None:
        """Records a reduction that the program itself called."""
        self._by_hand += elements

    def unreduced(self) -> list[Variable]:
        """Lists the variables that were updated from gradients which nothing has reduced.

        None, if the program has reduced as much by itself: this may be their gradients.
        """
        left = [v for key, v in self._updated.items() if key not in self._accounted]
        return left if sum(map(_elements, left)) > self._by_hand else []


class _Loop:
    """What is known of steps that run eagerly."""

    def __init__(self) -> None:
        self.tapes = 0
        self._by_hand = 0.0
        self._unmeasured = 0  # reductions of any size: infinity would hide whatever comes later

    def reduce_by_hand(self, elements: float) -> None:
        """Records a reduction that the program itself called."""
        if math.isinf(elements):
            self._unmeasured += 1
        else:
            self._by_hand += elements

    def update(self, variables: Iterable[Variable]) -> list[Variable]:
        """Records updates; returns the variables that the loop leaves unreduced."""
        left = []
        for variable in variables:
            # Kept with the variable: a loop does not say when it is done with it.
            notes = notes_of(variable)
            if notes.get("_tfhvd_accounted"):
                continue
            now = (self.tapes, self._by_hand, self._unmeasured)
            (tapes, by_hand, unmeasured), times = notes.get("_tfhvd_update", (now, 0))
            reduced = self._unmeasured > unmeasured or (
                self._by_hand - by_hand >= _elements(variable)
            )
            times = times + 1 if self.tapes > tapes and not reduced else 0
            notes["_tfhvd_update"] = (now, times)
            if times >= _LATER:
                left.append(variable)
        return left


_watched: contextvars.ContextVar[Step | None] = contextvars.ContextVar("step", default=None)
_ours: contextvars.ContextVar[bool] = contextvars.ContextVar("ours", default=False)
_loop = _Loop()


@contextlib.contextmanager
def watched(step: Step) -> Iterator[None]:
    """Takes what happens inside for part of a step.

    Example:
        >>> step = Step()
        >>> with watched(step):
        ...     tape = DistributedGradientTape(tf.GradientTape())
        >>> [reducer.options.name for reducer in step.tapes.values()]
        ['DistributedGradientTape']
    """
    token = _watched.set(step)
    try:
        yield
    finally:
        _watched.reset(token)


@contextlib.contextmanager
def of_ours() -> Iterator[None]:
    """Keeps the collectives that tfhvd itself calls inside from being taken for the program's."""
    token = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(token)


def note_keras_updates() -> None:
    """Makes the optimizers of every imported Keras report the variables that they update."""
    for package in keras_compat.imported_keras():
        training.after_updates(package, note_update)


def note_tape(reducer: GradientReducer) -> None:
    """Tells of a distributed tape, by what reduces its gradients."""
    options = reducer.options
    step = _current()
    if step is not None:
        step.tapes[options.name, options.process_set.process_set_id] = reducer
        _look(step)
    elif has_peers(options.process_set):
        _loop.tapes += 1


def note_reduced(variables: Iterable[Variable]) -> None:
    """Tells of variables whose gradients are reduced, or are meant to be this rank's own."""
    variables = list(variables)
    for variable in variables:
        notes_of(variable)["_tfhvd_accounted"] = True
    step = _current()
    if step is not None:
        step.account_for(variables)


def note_names(names: Iterable[str]) -> None:
    """Tells what all reductions of gradients are called in the graph that is being traced."""
    step = _current()
    if step is not None:
        step.names = frozenset(names)


def is_watched() -> bool:
    """Whether what happens now is part of a step of `fit`."""
    return _watched.get() is not None


def optimizer_of(variable: Variable) -> Optimizer | None:
    """Returns the optimizer of Keras that has updated a variable last, as far as is known."""
    optimizer = notes_of(variable).get(_OPTIMIZER)
    return None if optimizer is None else optimizer()


def note_update(
    optimizer: Optimizer, gradients: Sequence[Gradient], variables: Sequence[Variable]
) -> None:
    """Tells of an update by an optimizer of Keras.

    Args:
        optimizer: which has made it.
        gradients: tensors, IndexedSlices, or None for what is not updated.
        variables: what they belong to.

    Raises:
        NotSynchronizedError: if the step is not watched, and reduces some gradients but not these.
    """
    for variable in variables:
        notes_of(variable)[_OPTIMIZER] = weakref.ref(optimizer)
    if not is_asked_for():
        return
    updated = [
        variable
        for gradient, variable in zip(gradients, variables)
        # What has its new value as a gradient counts what this rank has seen.
        if gradient is not None and not getattr(variable, "overwrite_with_gradient", False)
    ]
    step = _current()
    if step is not None:
        step.update(updated)
        _look(step)
    elif _loop.tapes:
        _complain_of_loop(_loop.update(updated))


def note_reduction(tensors: Iterable[TensorLike | Gradient]) -> None:
    """Tells of a reduction that was called by name: of gradients, maybe."""
    if _ours.get():
        return
    elements = float(sum(map(_elements, tensors)))
    step = _current()
    (_loop if step is None else step).reduce_by_hand(elements)


def is_asked_for() -> bool:
    """Whether several ranks train, or may, and the setting TFHVD_CHECK_SYNC is not off."""
    if membership.is_apart:
        return False  # what it trains before it is let in, it trains by itself
    return process.is_one_of_several() and _setting() != "OFF"


def complain(variables: Sequence[Variable], when: str, write: str) -> None:
    """Raises, or warns, as the setting TFHVD_CHECK_SYNC says.

    Args:
        variables: what was updated from gradients of this rank alone; without any nothing happens.
        when: begins the text.
        write: what to do, a sentence or more.

    Raises:
        NotSynchronizedError: unless the setting is warn or off.
    """
    if not variables or not is_asked_for():
        return
    names = [variable_name(v) or "(without a name)" for v in variables]
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    text = (
        f"{when} on rank {process.rank()}: {len(names)} trainable "
        f"{'variables are' if len(names) > 1 else 'variable is'} updated from gradients of this "
        f"rank alone, and will differ between {who_differs()}: {shown}. Write: {write} "
        "TFHVD_CHECK_SYNC=warn makes this a warning, and TFHVD_CHECK_SYNC=off checks nothing."
    )
    if _setting() == "ERROR":
        raise NotSynchronizedError(text)
    _warn_once(text)


def who_differs() -> str:
    """Says between whom weights differ that are not reduced, for messages."""
    size = process.size()
    return f"the {size} ranks" if size > 1 else "this rank and those that join"


def _setting() -> str:
    """Returns ERROR, WARN or OFF."""
    return load_native().config().check_sync.name


@functools.cache
def _warn_once(text: str) -> None:
    _logger.warning(text)


def _look(step: Step) -> None:
    """Looks at the step of a function that is being traced."""
    if step is _watched.get() or not is_asked_for():
        return
    if any(has_peers(tape.options.process_set) for tape in step.tapes.values()):
        _complain_of_loop(step.unreduced())


def _complain_of_loop(variables: Sequence[Variable]) -> None:
    complain(
        variables,
        "A loop with DistributedGradientTape",
        "tape = hvd.DistributedGradientTape(tape) before the tape.gradient(...) that gives their "
        "gradients, or tape.register_local_source(variable) on such a tape for a variable that is "
        "to stay each rank's own.",
    )


def _current() -> Step | None:
    """Returns the step in progress; None if that is of a loop that runs eagerly."""
    step = _watched.get()
    if step is not None or tf.executing_eagerly():
        return step
    graph = tf.compat.v1.get_default_graph()
    if not hasattr(graph, "outer_graph"):
        return Step()  # Of a session: what is made at one place may run in any step.
    steps = [graph, *graphs.outer_graphs(graph)][-1].get_collection_ref(_STEP)
    if not steps:
        steps.append(Step())
    return steps[0]


def notes_of(variable: Variable) -> dict[str, Any]:
    """Returns where notes on a variable are kept; on what is no variable none are."""
    variable = tf_variable(variable)
    return vars(variable) if isinstance(variable, tf.Variable) else {}


def _elements(tensor: TensorLike | Gradient) -> float:
    """Counts elements; infinity if that is unknown."""
    if isinstance(tensor, tf.IndexedSlices):
        return math.inf  # Its rows may be any part of a variable.
    shape = getattr(tensor, "shape", None)
    if shape is None:
        return np.size(tensor)
    count = tf.TensorShape(shape).num_elements()
    return math.inf if count is None else count
