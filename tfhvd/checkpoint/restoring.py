"""Finds a checkpoint, and restores the state of a program from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tfhvd.checkpoint import tensors
from tfhvd.checkpoint.contents import Named, State
from tfhvd.checkpoint.errors import CheckpointError, DamagedError
from tfhvd.checkpoint.manifest import Manifest
from tfhvd.checkpoint.names import same_names
from tfhvd.checkpoint.store import Store, reading
from tfhvd.compat.variables import tf_variable

_SHOWN = 6  # tensors in a message


@dataclasses.dataclass(frozen=True)
class Found:
    """A checkpoint that was read completely.

    Attributes:
        manifest: its manifest.
        arrays: the arrays that this rank needs, by name.
    """

    manifest: Manifest
    arrays: dict[str, np.ndarray]


def find(store: Store, rank: int, below: int | None, say: Callable[[str], None]) -> Found | None:
    """Reads the newest checkpoint that is complete for a rank.

    Args:
        store: the folder of checkpoints.
        rank: this rank, which reads the tensors of `rank` modulo the number of ranks that saved.
        below: the step before which it must be; None for any step.
        say: takes a line for each damaged checkpoint, with its file.

    Raises:
        CheckpointError: if a checkpoint is of a later version.
    """
    for step in reversed(store.steps()):
        if below is not None and step >= below:
            continue
        try:
            manifest = store.manifest(step)
            with reading():
                tensors.verify_files(store.folder(step), manifest)
                arrays = {
                    entry.name: tensors.read(store.folder(step), entry)
                    for entry in manifest.entries
                    if entry.rank in (None, rank % manifest.ranks)
                }
        except DamagedError as error:
            say(f"{error} The checkpoint of step {step} is left, and an earlier one is looked for.")
            continue
        return Found(manifest, arrays)
    return None


def assign(state: State, found: Found, rank: int, strict: bool, say: Callable[[str], None]) -> None:
    """Gives a state the tensors and values of a checkpoint.

    Args:
        state: the state of the program.
        found: the checkpoint.
        rank: the rank of this process.
        strict: whether the checkpoint must have all tensors of the state, and no other.
        say: without `strict`, takes a line with the tensors that do not match.

    Raises:
        CheckpointError: with `strict`, if tensors do not match; nothing is changed then.
    """
    is_new = rank >= found.manifest.ranks
    wanted = [n for n in state.variables if not (n.seed and is_new)]
    arrays = _by_names_here(state, found.arrays)
    problems, fitting = [], []
    for named in wanted:
        problem = _problem_of(named, arrays.get(named.name))
        if problem:
            problems.append(problem)
        else:
            fitting.append(named)
    extra = arrays.keys() - {named.name for named in state.variables}
    problems += [f"'{name}' is only in the checkpoint" for name in sorted(extra)]
    values = found.manifest.values[rank % found.manifest.ranks]
    problems += [f"'{name}' is not in the checkpoint" for name in state.without(values)]
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        text = (
            f"The checkpoint of step {found.manifest.step} does not fit: "
            f"{'; '.join(problems[:_SHOWN])}{more}."
        )
        if strict:
            raise CheckpointError(f"{text} Pass strict=False to restore what fits.")
        say(text)
    for named in fitting:
        tf_variable(named.variable).assign(arrays[named.name])
    state.take_values(values)
    state.after_variables()


def _by_names_here(state: State, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns arrays by the names of their variables in this process."""
    wanted = [named.name for named in state.variables]
    if arrays.keys() >= set(wanted):
        return arrays
    renamed = {saved: name for name, saved in same_names(wanted, arrays).items()}
    return {renamed.get(name, name): array for name, array in arrays.items()}


def _problem_of(named: Named, array: np.ndarray | None) -> str:
    if array is None:
        return f"'{named.name}' is not in the checkpoint"
    inner = tf_variable(named.variable)
    shape, dtype = tuple(inner.shape), inner.dtype.name
    if (shape, dtype) == (array.shape, array.dtype.name):
        return ""
    return (
        f"'{named.name}' is {array.dtype.name}{list(array.shape)} in the checkpoint, and "
        f"{dtype}{list(shape)} here"
    )
