"""Checks that the ranks that train a model together still have the same weights.

Each rank takes a fingerprint of each variable, and one small collective sends all fingerprints to
all ranks. If they differ, a comparison of the values tells in how many elements, and by how much.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfhvd.compat.variables import key_of, tf_variable, variable_name
from tfhvd.errors import NotSynchronizedError
from tfhvd.job import process
from tfhvd.ops import Sum, allgather, allreduce, sync_monitor
from tfhvd.runtime.native import load_native
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable

_logger = logging.getLogger("tfhvd")
ACTIONS = ("warn", "raise", "heal")
_SHOWN = 6  # variables in a message
_FEW = 8  # if at most one of so many elements differs, the computation is not the cause
_SMALL = 1e-3  # the part of the largest element to which rounding errors may add up
_START = (
    "unequal start; pass BroadcastGlobalVariablesCallback(0) on every rank, or call "
    "hvd.broadcast_variables before the first step"
)
_UNREDUCED = "its gradient was not reduced; its optimizer or tape must be distributed"


@dataclasses.dataclass(frozen=True)
class _Difference:
    """A variable that differs between ranks.

    Attributes:
        number: the index of the variable.
        root: a rank of the majority; of two ranks the first one.
        others: the ranks that differ from `root`.
    """

    number: int
    root: int
    others: list[int]


def check_divergence(
    variables: Iterable[Variable],
    step: int | None = None,
    on_divergence: str = "warn",
    process_set: ProcessSet = global_process_set,
) -> list[str]:
    """Compares variables that should be equal on all ranks.

    `fit` calls it itself: see the setting TFHVD_DIVERGENCE_STEPS. In your own loop, call it on
    every rank of the set after the same step, every 100 steps or so.

    Args:
        variables: variables of either Keras or TensorFlow, in the same order on every rank, without
            those that may differ.
        step: the number of the step, for the message.
        on_divergence: "warn"; "raise"; or "heal", which warns and gives all ranks the values of the
            majority, of two ranks those of the first.
        process_set: the ranks that take part.

    Returns:
        The names of the variables that differ, the same on every rank.

    Raises:
        NotInitializedError: before `init`.
        NotSynchronizedError: if a variable differs, with on_divergence="raise".
        ValueError: if `on_divergence` has another value.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> hvd.check_divergence(model.trainable_variables, step=100)
        []
    """
    if on_divergence not in ACTIONS:
        raise ValueError(
            f"check_divergence: received on_divergence={on_divergence!r}. "
            f"Expected: one of {', '.join(ACTIONS)}."
        )
    comparison = Comparison(variables, "" if step is None else f"after step {step}", process_set)
    return comparison.finish(on_divergence)


class Comparison:
    """One comparison of variables; the constructor starts it.

    A separate thread takes the fingerprints and waits for the slowest rank, while the calling
    thread continues with the next step. The next step does not change the compared values:
    TensorFlow updates a variable in place only if no other reference to its value exists, and
    otherwise writes to new memory.

    Args:
        variables: the variables with their present values, in the same order on all ranks.
        when: a text such as "after step 100", for the message.
        process_set: the ranks; a rank that has called `hvd.join` takes no part.
        complete: whether this rank has all its variables. While a rank waits for some, ranks may
            have different numbers of variables, and the comparison is skipped.
        name: the name of its collectives, so that several comparisons may run at a time.
    """

    def __init__(
        self,
        variables: Iterable[Variable],
        when: str,
        process_set: ProcessSet,
        complete: bool = True,
        name: str = "divergence",
    ) -> None:
        self._variables = list(variables)
        self._when = when
        self._ranks = process_set
        self._complete = complete
        self._name = name
        self._gathered: np.ndarray | None = None
        self._found: list[_Difference] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._gather,
            args=(process.rank(), [value_of(variable) for variable in self._variables]),
            name="tfhvd-divergence",
            daemon=True,
        )
        self._thread.start()

    def _gather(self, rank: int, values: list[tf.Tensor]) -> None:
        try:
            own = [rank, len(values), self._complete]
            values.reverse()
            while values:
                # Drop each value at once: an update of its variable copies a value that is held.
                own.append(_fingerprint(values.pop()))
            with tf.device("CPU:0"):
                row = tf.constant(np.array(own, np.uint64).view(np.int64))
                everything = allgather(row, name=self._name, process_set=self._ranks)
            self._gathered = everything.numpy()
        except Exception as error:  # raised later in the thread that waits for the result
            self._error = error

    def wait(self) -> None:
        """Waits until each rank of the set has begun this comparison, or called `hvd.join`."""
        self._thread.join()

    def leave(self) -> None:
        """Waits a short time for the end of the collective, if its result is not needed."""
        self._thread.join(1.0)

    def finish(
        self,
        action: str,
        at_start: bool = False,
        unreduced: Collection[int] = (),
        known: Collection[int] = (),
        together: bool = True,
    ) -> list[str]:
        """Reports the variables that differ; returns their names.

        Args:
            action: one of ACTIONS.
            at_start: whether no step has been made yet.
            unreduced: the keys of variables whose gradients were not reduced.
            known: the keys of variables that were reported before.
            together: whether all ranks that took part call this, too, except ranks that have called
                `hvd.join`.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        of_ranks, complete = _by_rank(self._gathered)
        counts = {rank: len(row) for rank, row in of_ranks.items() if len(row)}
        if len(set(counts.values())) > 1:
            if not complete:
                return []
            numbers = ", ".join(f"{count} on rank {rank}" for rank, count in counts.items())
            self._say([f"ranks have different numbers of variables ({numbers})"], action)
            return []
        found = self._found = _differences(of_ranks)
        new = [d for d in found if key_of(self._variables[d.number]) not in known]
        said: list[str] = []
        for difference in found:
            variable = self._variables[difference.number]
            looks = difference in new and len(said) < _SHOWN and not at_start
            value = None
            if together and (looks or action == "heal"):
                value = self._value_on(difference.root, variable)
            if difference in new:
                why = _START if at_start else ""
                if key_of(variable) in unreduced and not at_start:
                    why = _UNREDUCED
                measures = self._measure(variable, value) if together and looks else {}
                said.append(_describe(variable, difference, measures, why))
            if action == "heal" and value is not None:
                _assign(variable, value)
        if said:
            weights = any(self._variables[d.number].trainable for d in new)
            self._say(said, action, "Weights differ" if weights else "Other state differs")
        return [variable_name(self._variables[d.number]) or "" for d in found]

    def differing(self) -> set[int]:
        """Returns the keys of the variables that differ."""
        return {key_of(self._variables[d.number]) for d in self._found}

    def _say(self, said: Sequence[str], action: str, what: str = "Weights differ") -> None:
        more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
        when = f" {self._when}" if self._when else ""
        text = f"{what} between ranks{when}: {'; '.join(said[:_SHOWN])}{more}."
        if action == "raise":
            raise NotSynchronizedError(text)
        if action == "heal":
            text += " All ranks take over the values of the majority, of two ranks the first's."
        if self._ranks.rank() == 0:
            _logger.warning(text)

    def _value_on(self, root: int, variable: Variable) -> np.ndarray | None:
        """Returns the bytes of a variable on one rank; None if this rank has called `hvd.join`."""
        own = _bytes(variable)
        sent = np.concatenate([[1], own]) if process.rank() == root else np.zeros(own.size + 1)
        with sync_monitor.of_ours(), tf.device("CPU:0"):
            # A sum, because ranks that have called `hvd.join` cannot broadcast, but add zeros here.
            sent = tf.constant(sent.astype(np.uint8))
            name = f"{self._name}/value"
            value = allreduce(sent, op=Sum, name=name, process_set=self._ranks).numpy()
        return value[1:] if value[0] == 1 else None

    def _measure(self, variable: Variable, value: np.ndarray | None) -> dict[int, Sequence[float]]:
        """Returns by rank the elements that differ, the bits, and the largest relative difference.

        The largest difference is relative to the largest element.
        """
        own, measures = _bytes(variable), [0.0, 0.0, 0.0]
        if value is not None and own.size:
            dtype = tf_variable(variable).dtype.as_numpy_dtype
            size = np.dtype(dtype).itemsize
            differs = own ^ value
            mine, theirs = (np.nan_to_num(b.view(dtype).astype(np.float64)) for b in (own, value))
            part = np.abs(mine - theirs).max() / (np.abs(theirs).max() or 1.0)
            elements = differs.reshape(-1, size).any(axis=1).sum()
            measures = [float(elements), float(np.unpackbits(differs).sum()), float(part)]
        with tf.device("CPU:0"):
            row = tf.constant([[float(process.rank()), *measures]], tf.float64)
            rows = allgather(row, name=f"{self._name}/measures", process_set=self._ranks).numpy()
        return {int(row[0]): row[1:] for row in rows} if value is not None else {}


def value_of(variable: Variable) -> tf.Tensor:
    """Returns the present value of a variable, without a copy if possible."""
    inner = tf_variable(variable)
    if isinstance(inner, tf.Variable):
        # TensorFlow's conversion does more than this, which takes two times as long in addition.
        return tf.raw_ops.ReadVariableOp(resource=inner.handle, dtype=inner.dtype)
    return tf.convert_to_tensor(inner)


def fingerprint(variable: Variable) -> int:
    """Returns a number that is almost certainly different for different values of a variable."""
    return _fingerprint(value_of(variable))


def digest(variables: Iterable[Variable]) -> int:
    """Returns 56 bits of the values of variables, in their order."""
    prints = np.array([fingerprint(variable) for variable in variables], np.uint64)
    return int.from_bytes(hashlib.blake2b(prints.tobytes(), digest_size=7).digest(), "little")


def _fingerprint(value: tf.Tensor) -> int:
    if value.dtype.is_floating and value.dtype.size == 2:
        value = tf.bitcast(value, tf.uint16)  # Python's buffers do not have bfloat16
    try:
        return load_native().fingerprint(memoryview(value))
    except (TypeError, ValueError, BufferError):
        return load_native().fingerprint(np.ascontiguousarray(value.numpy()))


def _bytes(variable: Variable) -> np.ndarray:
    value = np.ascontiguousarray(tf_variable(variable).numpy())
    return np.frombuffer(value.tobytes(), np.uint8)


def _assign(variable: Variable, value: np.ndarray) -> None:
    inner = tf_variable(variable)
    array = np.frombuffer(value.tobytes(), inner.dtype.as_numpy_dtype)
    inner.assign(array.reshape(inner.shape))


def _by_rank(gathered: np.ndarray) -> tuple[dict[int, np.ndarray], bool]:
    """Returns by rank the fingerprints of variables, and whether every rank has all variables."""
    of_ranks: dict[int, np.ndarray] = {}
    everything, at = True, 0
    while at < len(gathered):
        rank, count, complete = (int(number) for number in gathered[at : at + 3])
        of_ranks[rank] = gathered[at + 3 : at + 3 + count]
        everything = everything and bool(complete)
        at += 3 + count
    return of_ranks, everything


def _differences(of_ranks: dict[int, np.ndarray]) -> list[_Difference]:
    """Lists the variables that differ; none if a rank has no variables yet."""
    if not of_ranks or not all(len(row) for row in of_ranks.values()):
        return []
    ranks, rows = list(of_ranks), np.stack(list(of_ranks.values()))
    found = []
    for number in np.flatnonzero((rows != rows[0]).any(axis=0)):
        column = rows[:, number].tolist()
        # The value of the first rank, if two values are equally frequent.
        [(majority, _)] = collections.Counter(column).most_common(1)
        others = [rank for rank, one in zip(ranks, column) if one != majority]
        found.append(_Difference(int(number), ranks[column.index(majority)], others))
    return found


def _describe(
    variable: Variable, difference: _Difference, measures: dict[int, Sequence[float]], why: str
) -> str:
    elements = int(tf_variable(variable).shape.num_elements() or 0)
    ranks = ", ".join(map(str, difference.others))
    text = f"{variable_name(variable) or '(without a name)'} on "
    text += (
        f"rank{'s' if len(difference.others) > 1 else ''} {ranks} against rank {difference.root}"
    )
    odd = [measures[rank] for rank in difference.others if rank in measures]
    if odd:
        count, bits, part = (max(column) for column in zip(*odd))
        text += f", in {count:.0f} of {elements} elements ({bits:.0f} bits)"
        why = why or _class_of(count, elements, part)
    return f"{text}: {why or 'unknown cause'}"


def _class_of(count: float, elements: int, part: float) -> str:
    if count * _FEW <= elements:
        return "looks like corrupted memory, or a corrupted reduction, for so few elements differ"
    if part <= _SMALL:
        return "looks like a nondeterministic op after the reduction, for the difference is small"
    return "unknown cause"
